// The one way out: whatever the reason, everything is given back and the client is told once.
#include <catch2/catch_test_macros.hpp>

#include "schedule_room.h"

using namespace llmrt;
using test::request_of;
using test::room_config;
using test::ScheduleRoom;

namespace {

constexpr TimeNs kMs = 1'000'000;

}  // namespace

TEST_CASE("a running branch gives everything back, and streams until its receiver lets go") {
  ScheduleRoom room;
  Sequence& row = room.run(request_of(1, 12, 8), 8, /*reserved=*/16);
  row.record.cached_tokens = 4;
  room.flows.exits.end(row, RequestState::kStreaming, {{.token = 3}}, FinishReason::kEos, 5);
  CHECK(room.owners.kv.num_free(0) == 16);
  CHECK(room.owners.running.is_empty());
  CHECK(row.tokens.empty());
  const std::vector<TokenEvent> events = room.events();
  REQUIRE(events.size() == 1);
  CHECK(events[0].token == 3);
  CHECK(events[0].finish == FinishReason::kEos);
  CHECK(events[0].cached_tokens == 4);
  CHECK(room.stats().over_reserved_tokens == 8);
  CHECK(room.audit().ok());

  std::vector<RequestTrace> traces;
  room.owners.journal.take_traces(&traces);
  CHECK(traces.empty());
  room.flows.exits.let_go(row, RequestState::kFinished, {});
  room.owners.journal.take_traces(&traces);
  REQUIRE(traces.size() == 1);
  CHECK(traces[0].finish == FinishReason::kEos);
  CHECK(room.owners.branches.size() == 0);
}

TEST_CASE("a waiting branch that is cancelled leaves the queue and is forgotten at once") {
  ScheduleRoom room;
  Sequence& waits = *room.add(request_of(1));
  room.flows.exits.end(waits, RequestState::kCancelled, {}, FinishReason::kCancelled, 0);
  CHECK(room.owners.waiting.size() == 0);
  CHECK(room.owners.branches.size() == 0);
  CHECK(room.owners.branches.num_streaming() == 0);
}

TEST_CASE("what is past its time ends with the limit that it passed, and others go on") {
  ScheduleRoom room;
  Request late = request_of(1), later = request_of(2);
  late.expiry_ns = 10 * kMs;
  later.expiry_ns = 20 * kMs;
  room.add(late);
  room.add(later);
  room.flows.exits.expire(10 * kMs);
  const std::vector<TokenEvent> events = room.events();
  REQUIRE(events.size() == 1);
  CHECK(events[0].request_id == 1);
  CHECK(events[0].finish == FinishReason::kTimeout);
  CHECK(events[0].error->code == ErrorCode::kTimeout);
  CHECK(room.owners.waiting.size() == 1);
  room.flows.exits.expire(30 * kMs);
  CHECK(room.owners.waiting.size() == 0);
}

TEST_CASE("what is past its time while it runs gives everything back, too") {
  ScheduleRoom room;
  Request request = request_of(1, 12, 8);
  request.deadline_ns = 10 * kMs;
  room.run(request, 8);
  room.flows.exits.expire(10 * kMs);
  CHECK(room.owners.branches.size() == 0);
  CHECK(room.owners.running.has_slot());
  CHECK(room.owners.kv.num_free(0) == 16);
  CHECK(room.audit().ok());
}

TEST_CASE("beams end together") {
  ScheduleRoom room;
  Request request = request_of(1);
  request.n = 3;
  request.beam = BeamParams{};
  room.add(request);
  room.flows.exits.end_all(*room.owners.branches.find(2), RequestState::kCancelled, {}, FinishReason::kCancelled, 0);
  CHECK(room.events().size() == 3);
  CHECK(room.owners.branches.size() == 0);
}

TEST_CASE("keys and values of a spoilt row are kept for no other") {
  SchedulerConfig config = room_config();
  config.prefix_cache = PrefixCacheKind::kRadix;
  ScheduleRoom room(config);
  Sequence& row = room.run(request_of(1, 12, 8), 8);
  room.flows.exits.end(row, RequestState::kStreaming, {{.error = make_error(ErrorCode::kNotFinite, "spoilt")}},
                       FinishReason::kError, 0);
  CHECK(room.owners.kv.num_cached(0) == 0);
  Sequence& good = room.run(request_of(2, 12, 8), 8);
  room.flows.exits.end(good, RequestState::kStreaming, {{.token = 3}}, FinishReason::kEos, 0);
  CHECK(room.owners.kv.num_cached(0) == 2);
}

TEST_CASE("when the device is lost all end; when the books are broken nothing is given back") {
  for (const ErrorCode code : {ErrorCode::kDeviceLost, ErrorCode::kInternal}) {
    ScheduleRoom room;
    room.run(request_of(1, 12, 8), 8);
    room.add(request_of(2));
    room.flows.exits.fail_all(make_error(code, "gone"), 0);
    const std::vector<TokenEvent> events = room.events();
    REQUIRE(events.size() == 2);
    CHECK(events[0].error->code == code);
    CHECK(room.owners.running.is_empty());
    CHECK(room.owners.waiting.size() == 0);
    CHECK(room.owners.branches.num_streaming() == 1);  // the one that ran; the other is rejected
    CHECK(room.owners.kv.num_free(0) == (code == ErrorCode::kInternal ? 14u : 16u));
  }
}

TEST_CASE("a sequence that outgrows the pool alone is told how many blocks it needed") {
  ScheduleRoom room(room_config(/*num_blocks=*/3));
  Sequence& row = room.run(request_of(1, 12, 8), 12);
  room.flows.exits.end_exhausted(row, 13, 0);
  CHECK(room.events()[0].error->message ==
        "pool exhausted: request 1 alone: 13 tokens need 4 KV blocks of 4, the pool has 3");
}
