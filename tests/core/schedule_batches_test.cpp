// The batches of static and dynamic batching.
#include <catch2/catch_test_macros.hpp>

#include "core/schedule/batches.h"
#include "schedule_parts.h"

using namespace llmrt;
using test::request_of;

namespace {

constexpr TimeNs kMs = 1'000'000;

struct Baseline {
  explicit Baseline(Batching batching, uint32_t rows = 2) : running(rows, 0) {
    config.batching = batching;
    config.sequences_max = rows;
    config.batch_wait_ms = 10;
  }
  Sequence& wait(RequestId id, TimeNs now = 0) {
    owned.push_back(test::sequence_of(request_of(id)));
    owned.back()->record.times.added_ns = now;
    waiting.add(*owned.back());
    return *owned.back();
  }
  void start(Sequence& sequence) {
    waiting.remove(sequence);
    sequence.move_to(RequestState::kPrefilling);
    running.admit(sequence);
  }

  SchedulerConfig config;
  Waiting waiting;
  Running running;
  Batches batches{config};
  std::vector<std::unique_ptr<Sequence>> owned;
};

}  // namespace

TEST_CASE("with continuous batching every sequence may start, and nothing is padded") {
  Baseline baseline(Batching::kContinuous);
  Sequence& sequence = baseline.wait(1);
  baseline.batches.make(baseline.waiting, 0);
  CHECK(baseline.batches.number() == 0);
  CHECK(baseline.batches.may_start(sequence));
  CHECK(baseline.batches.may_start_any(baseline.running));
  baseline.start(sequence);
  sequence.progress.computed = 3;
  const Batches::Left left = baseline.batches.leave(sequence);
  CHECK(left.computed == 3);
  CHECK(left.padding == 0);
}

TEST_CASE("a static batch has as many as there are rows, and the next is made when all of it have ended") {
  Baseline baseline(Batching::kStatic);
  Sequence& a = baseline.wait(1);
  Sequence& b = baseline.wait(2);
  Sequence& c = baseline.wait(3);
  baseline.batches.make(baseline.waiting, 0);
  CHECK(baseline.batches.may_start(a));
  CHECK(baseline.batches.may_start(b));
  CHECK_FALSE(baseline.batches.may_start(c));
  baseline.start(a);
  CHECK(baseline.batches.may_start_any(baseline.running));
  baseline.start(b);
  CHECK_FALSE(baseline.batches.may_start_any(baseline.running));
  CHECK(baseline.batches.check(baseline.running, baseline.waiting).ok());

  // Prompts of 4: a has 2 tokens of output computed, b none.
  a.tokens.insert(a.tokens.end(), {7, 7, 7});
  a.progress.computed = 6;
  b.progress.computed = 4;
  b.tokens.push_back(7);
  CHECK(baseline.batches.leave(a).padding == 0);
  baseline.running.release(a);
  baseline.batches.make(baseline.waiting, 0);
  CHECK(baseline.batches.number() == 1);
  CHECK(baseline.batches.leave(b).padding == 2);  // two rows of 4 + 2, of which 10 were computed
  baseline.running.release(b);
  baseline.batches.make(baseline.waiting, 0);
  CHECK(baseline.batches.number() == 2);
  CHECK(baseline.batches.may_start(c));
}

TEST_CASE("a dynamic batch that is not full is made when its first has waited long enough") {
  Baseline baseline(Batching::kDynamic);
  baseline.wait(1, 5 * kMs);
  baseline.batches.make(baseline.waiting, 15 * kMs - 1);
  CHECK(baseline.batches.number() == 0);
  baseline.batches.make(baseline.waiting, 15 * kMs);
  CHECK(baseline.batches.number() == 1);
}

TEST_CASE("a full dynamic batch does not wait, and beams of one request are in one batch") {
  Baseline baseline(Batching::kDynamic);
  const auto search = std::make_shared<BeamSearch>(3, BeamParams{}, 8, std::vector<int32_t>{});
  for (RequestId id = 1; id <= 3; ++id) baseline.wait(id).beam.search = search;
  Sequence& other = baseline.wait(4);
  baseline.batches.make(baseline.waiting, 0);
  for (size_t i = 0; i < 3; ++i) CHECK(baseline.batches.may_start(*baseline.owned[i]));
  CHECK_FALSE(baseline.batches.may_start(other));
}

TEST_CASE("the check finds a row that is not of the batch") {
  Baseline baseline(Batching::kStatic);
  Sequence& sequence = baseline.wait(1);
  baseline.batches.make(baseline.waiting, 0);
  baseline.start(sequence);
  sequence.ticket.batch = 0;
  CHECK_FALSE(baseline.batches.check(baseline.running, baseline.waiting).ok());
}
