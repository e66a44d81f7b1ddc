// What a running sequence gives up when it yields, and what it keeps.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include "schedule_room.h"

using namespace llmrt;
using test::request_of;
using test::room_config;
using test::ScheduleRoom;

TEST_CASE("a sequence that yields gives back slot, blocks and its part of the step, and waits with its tokens") {
  ScheduleRoom room;
  room.owners.draft.begin();
  Sequence& row = room.run(request_of(1, 12, 8), 8, /*reserved=*/16);
  Sequence& wants = room.run(request_of(2, 4, 8), 4, /*reserved=*/8);
  room.owners.draft.take(row, 4);
  REQUIRE(room.owners.kv.grow(row.residency.tables, 12));
  room.flows.yields.preempt(row, 2);
  CHECK(row.state() == RequestState::kPreempted);
  CHECK(row.waits());
  CHECK_FALSE(row.runs());
  CHECK(row.tokens.size() == 12);
  CHECK(row.record.num_preemptions == 1);
  CHECK(room.owners.draft.is_empty());
  CHECK(room.owners.kv.num_free(0) == 15);
  CHECK(room.owners.running.rows().front() == &wants);

  std::vector<Preemption> preemptions;
  room.owners.journal.take_preemptions(&preemptions);
  REQUIRE(preemptions.size() == 1);
  CHECK(preemptions[0].wanted_by == 2);
  CHECK(preemptions[0].computed_tokens == 8);
  CHECK(preemptions[0].num_blocks == 3);
  CHECK_FALSE(preemptions[0].swapped);
  CHECK(room.stats().num_outgrown == 0);  // the other is within its reservation
  CHECK(room.audit().ok());
}

TEST_CASE("prompt tokens that were scored are not scored again") {
  ScheduleRoom room;
  Request request = request_of(1, 12, 8);
  request.sampling.logprobs = 0;
  request.sampling.prompt_logprobs = true;
  Sequence& row = room.run(request, 8);
  row.progress.scored = 9;
  room.flows.yields.preempt(row, 1);
  CHECK(row.progress.scored == 9);
}

TEST_CASE("it counts as outgrown when the one that needs room has passed its reservation, itself included") {
  ScheduleRoom room;
  room.owners.draft.begin();
  Sequence& row = room.run(request_of(1, 12, 8), 8, /*reserved=*/8);
  Sequence& wants = room.run(request_of(2, 4, 8), 8, /*reserved=*/8);
  room.flows.yields.preempt(row, 2);
  CHECK(room.stats().num_outgrown == 1);
  room.flows.yields.preempt(wants, 2);
  CHECK(room.stats().num_outgrown == 2);
}

TEST_CASE("with a host tier what it has computed is worth storing by the policy") {
  for (const OnExhaustion policy : {OnExhaustion::kSwap, OnExhaustion::kRecompute}) {
    SchedulerConfig config = room_config();
    config.on_exhaustion = policy;
    config.prefix_cache = PrefixCacheKind::kHashed;
    config.host_blocks = 8;
    ScheduleRoom room(config);
    Sequence& row = room.run(request_of(1, 12, 8), 8);
    room.flows.yields.preempt(row, 1);
    CHECK(room.stats().num_swaps == (policy == OnExhaustion::kSwap ? 1 : 0));
    auto taken = room.owners.kv.make_tables(64);
    REQUIRE(room.owners.kv.grow(taken, 64));  // its blocks are handed out
    CHECK(room.owners.kv.stores().size() == (policy == OnExhaustion::kSwap ? 2u : 0u));
  }
}

TEST_CASE("a record counts by its bytes where swapping and computing again are compared") {
  // 8 tokens are two blocks: 2 ms to move, 4 ms to compute. A record is as large as 10 blocks, or as a tenth of one.
  for (const uint64_t record_bytes : {10'000, 100}) {
    SchedulerConfig config = room_config();
    config.kv_pools[0].block_bytes = 1000;
    config.kv_pools.push_back({8, 4, CacheKind::kState, 0, 8, record_bytes});
    config.prefix_cache = PrefixCacheKind::kRadix;
    config.host_blocks = 8;
    config.cost_prior = {.token_ms = 0.5, .store_ms = 0.5, .load_ms = 0.5};
    ScheduleRoom room(config);
    Sequence& row = room.run(request_of(1, 12, 8), 8);
    room.flows.yields.preempt(row, 1);
    std::vector<Preemption> preemptions;
    room.owners.journal.take_preemptions(&preemptions);
    REQUIRE(preemptions.size() == 1);
    CAPTURE(record_bytes);
    CHECK(preemptions[0].num_blocks == 3);
    CHECK(preemptions[0].swap_ms == Catch::Approx(2 + static_cast<double>(record_bytes) / 1000));
    CHECK(preemptions[0].swapped == (record_bytes == 100));
  }
}

TEST_CASE("a beam begins again behind another's tokens, whether it runs or waits") {
  ScheduleRoom room;
  const std::vector<int32_t> tokens = {9, 9, 9, 9, 9};
  Sequence& row = room.run(request_of(1, 4, 8), 4);
  Sequence& waits = *room.add(request_of(2, 4, 8));
  room.flows.yields.begin_again(row, tokens);
  room.flows.yields.begin_again(waits, tokens);
  CHECK(row.state() == RequestState::kPreempted);
  CHECK(waits.state() == RequestState::kQueued);
  for (const Sequence* sequence : {&row, &waits}) {
    CHECK(sequence->tokens == tokens);
    CHECK(sequence->waits());
  }
  CHECK(room.stats().num_preemptions == 0);
  CHECK(room.owners.kv.num_free(0) == 16);
  CHECK(room.audit().ok());
}
