// Which waiting sequence starts next. The books around it are real and filled by hand; blocks of 4 tokens.
#include <catch2/catch_test_macros.hpp>
#include <numeric>

#include "core/schedule/start_order.h"
#include "schedule_parts.h"

using namespace llmrt;

namespace {

SchedulerConfig cached_config(bool has_states) {
  SchedulerConfig config;
  config.kv_pools = {{64, 4}};
  if (has_states) config.kv_pools.push_back({8, 16, CacheKind::kState});
  config.prefix_cache = PrefixCacheKind::kRadix;
  config.sequences_max = 8;
  config.penalty_rows_max = 2;
  return config;
}

struct Room {
  explicit Room(bool has_states = false) : config(cached_config(has_states)) {}

  // Waits. Texts of one `kind` begin alike.
  Sequence& wait(RequestId id, uint32_t num_tokens, int32_t kind = -1, bool has_penalty = false) {
    Request request = test::request_of(id, num_tokens);
    std::iota(request.prompt.begin(), request.prompt.end(), 1000 * (kind < 0 ? static_cast<int32_t>(id) : kind));
    if (has_penalty) request.sampling.presence_penalty = 1;
    return wait(std::move(request));
  }
  Sequence& wait(Request request, uint32_t branch = 0) {
    Sequence& sequence = branches.add(std::make_unique<Sequence>(std::move(request), branch));
    prefixes.set_origin(sequence);
    waiting.add(sequence);
    return sequence;
  }
  void run(Sequence& sequence, uint32_t computed) {
    waiting.remove(sequence);
    sequence.move_to(RequestState::kPrefilling);
    running.admit(sequence);
    sequence.residency.tables = kv.make_tables(64);
    REQUIRE(kv.grow(sequence.residency.tables, computed));
    sequence.progress.computed = computed;
    prefixes.keep_filled(sequence);
  }
  Sequence* next() { return order.next(Lane::kInteractive, ++round, ++plan); }

  SchedulerConfig config;
  KvSpace kv{config.kv_pools, config.prefix_cache};
  Prefixes prefixes{config, kv};
  Branches branches;
  Waiting waiting;
  Running running{8, 2};
  Batches batches{config};
  Journal journal{{}};
  StartOrder order{config, kv, prefixes, branches, waiting, running, batches, journal};
  uint64_t round = 0, plan = 0;
};

}  // namespace

TEST_CASE("the longest known prefix goes first, then the shortest prompt by powers of two, then the first come") {
  Room room;
  room.run(room.wait(1, 16, /*kind=*/7), 16);
  Sequence& plain = room.wait(2, 20);
  Sequence& knows = room.wait(3, 24, 7);
  CHECK(room.next() == &knows);
  CHECK(knows.found.prefix_blocks == 4);
  room.waiting.remove(knows);
  CHECK(room.next() == &plain);
  Sequence& lengthy = room.wait(4, 200);
  room.waiting.remove(plain);
  Sequence& brief = room.wait(5, 20);
  CHECK(room.next() == &brief);
  CHECK(room.waiting.queue(Lane::kInteractive).begin()->second == &lengthy);
}

TEST_CASE("a sequence that was tried in this round is not asked again") {
  Room room;
  Sequence& first = room.wait(1, 8);
  Sequence& second = room.wait(2, 8);
  first.ticket.tried_in = 1;
  CHECK(room.next() == &second);  // round 1
  CHECK(room.next() == &first);
}

TEST_CASE("what is overtaken eight times goes first, and counts once for each that starts before it") {
  Room room;
  room.run(room.wait(1, 16, 7), 16);
  Sequence& waits = room.wait(2, 20);
  for (RequestId id = 10; id < 18; ++id) {
    Sequence& knows = room.wait(id, 24, 7);
    CHECK_FALSE(StartOrder::is_aged(waits));
    REQUIRE(room.next() == &knows);
    room.order.count_overtaken(knows, {});
    room.waiting.remove(knows);
  }
  CHECK(StartOrder::is_aged(waits));
  room.wait(20, 24, 7);
  CHECK(room.next() == &waits);
  CHECK(room.journal.stats({}, room.kv).overtaken_most == 8);
}

TEST_CASE("a preempted sequence goes before all others") {
  Room room;
  room.run(room.wait(1, 16, 7), 16);
  room.wait(2, 24, 7);
  Sequence& yielded = room.wait(3, 8);
  room.waiting.remove(yielded);
  yielded.move_to(RequestState::kPrefilling);
  yielded.move_to(RequestState::kPreempted);
  room.waiting.add(yielded);
  CHECK(room.next() == &yielded);
}

TEST_CASE("a sequence waits for the block that a running one is about to compute, for sixteen plans") {
  Room room;
  Sequence& computes = room.wait(1, 32, 7);
  room.run(computes, 8);
  Sequence& same = room.wait(2, 32, 7);
  for (int plan = 0; plan < 16; ++plan) CHECK(room.next() == nullptr);
  CHECK(same.ticket.is_held);
  CHECK(room.next() == &same);
}

TEST_CASE("where there are states a sequence waits for the next checkpoint of what it has in common") {
  Room room(true);
  Sequence& computes = room.wait(1, 100, 7);  // keeps the state behind 96 tokens
  room.run(computes, 8);
  Sequence& same = room.wait(2, 100, 7);
  for (int plan = 0; plan < 256; ++plan) CHECK(room.next() == nullptr);
  CHECK(room.next() == &same);
}

TEST_CASE("it does not wait where the running one keeps no state of what they have in common") {
  Room room(true);
  Sequence& computes = room.wait(1, 100, 7);
  room.run(computes, 8);
  Request request = test::request_of(2, 100);
  std::copy_n(computes.tokens.begin(), 90, request.prompt.begin());
  Sequence& second = room.wait(std::move(request));
  CHECK(room.next() == &second);
  // It passes the place where they part, and keeps the state there: a third one waits for that.
  room.prefixes.look_up(second, room.running.rows());
  CHECK(second.found.split == 80);
  room.run(second, 8);
  Request third = test::request_of(3, 100);
  std::copy_n(computes.tokens.begin(), 90, third.prompt.begin());
  Sequence& waits = room.wait(std::move(third));
  CHECK(room.next() == nullptr);
  REQUIRE(room.kv.grow(second.residency.tables, 80));
  second.progress.computed = 80;
  room.prefixes.keep_filled(second);
  CHECK(room.next() == &waits);
}

TEST_CASE("for the state of a less urgent one a sequence waits sixteen plans") {
  Room room(true);
  Request batch = test::request_of(1, 100);
  std::iota(batch.prompt.begin(), batch.prompt.end(), 7000);
  batch.request_class = RequestClass::kBatch;
  Sequence& computes = room.wait(std::move(batch));
  room.run(computes, 8);
  Sequence& same = room.wait(2, 100, 7);
  for (int plan = 0; plan < 16; ++plan) CHECK(room.next() == nullptr);
  CHECK(room.next() == &same);
}

TEST_CASE("it stops waiting when the block is there, and other texts never wait") {
  Room room;
  Sequence& computes = room.wait(1, 10, 7);
  room.run(computes, 4);
  Sequence& same = room.wait(2, 9, 7);
  Sequence& other = room.wait(3, 8);
  CHECK(room.next() == &other);
  room.order.count_overtaken(other, {});
  CHECK(same.ticket.num_overtaken == 0);  // it is held
  room.waiting.remove(other);
  REQUIRE(room.kv.grow(computes.residency.tables, 10));
  computes.progress.computed = 10;
  room.prefixes.keep_filled(computes);
  CHECK(room.next() == &same);
  CHECK_FALSE(same.ticket.is_held);
}

TEST_CASE("branches start in their order, and wait for the one that computes their prompt") {
  Room room;
  Request request = test::request_of(1, 8);
  request.n = 3;
  std::vector<Sequence*> branches;
  for (uint32_t branch = 0; branch < 3; ++branch) {
    request.id = 1 + branch;
    branches.push_back(&room.wait(request, branch));
  }
  REQUIRE(room.next() == branches[0]);
  room.run(*branches[0], 4);
  CHECK(room.next() == nullptr);
  REQUIRE(room.kv.grow(branches[0]->residency.tables, 7));
  branches[0]->progress.computed = 7;  // all but the last token of the prompt
  CHECK(room.next() == branches[1]);
}

TEST_CASE("without a free penalty slot only requests that need none are looked at") {
  Room room;
  room.run(room.wait(1, 8, -1, true), 4);
  room.run(room.wait(2, 8, -1, true), 4);
  room.wait(3, 8, -1, true);
  CHECK(room.next() == nullptr);
  Sequence& plain = room.wait(4, 8);
  CHECK(room.next() == &plain);
}

TEST_CASE("those of other lanes that found no room are overtaken, too") {
  Room room;
  Sequence& starts = room.wait(1, 8);
  Request request = test::request_of(2, 8, 8, RequestClass::kBatch);
  Sequence& no_room = room.wait(std::move(request));
  Sequence* const passed_over[] = {&no_room, &starts};
  room.order.count_overtaken(starts, passed_over);
  CHECK(no_room.ticket.num_overtaken == 1);
  CHECK(starts.ticket.num_overtaken == 0);
}
