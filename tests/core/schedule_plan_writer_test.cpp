// What stands in a plan. Rows are admitted by hand; blocks of 4 tokens.
#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "core/schedule/plan_writer.h"
#include "schedule_parts.h"

using namespace llmrt;
using test::request_of;

namespace {

SchedulerConfig config_of() {
  SchedulerConfig config;
  config.kv_pools = {{16, 4}};
  return config;
}

struct Room {
  Sequence& run(Request request) {
    owned.push_back(test::sequence_of(std::move(request)));
    return start(*owned.back());
  }
  Sequence& start(Sequence& sequence) {
    sequence.move_to(RequestState::kPrefilling);
    running.admit(sequence);
    sequence.residency.tables = kv.make_tables(64);
    return sequence;
  }
  void take(Sequence& sequence, uint32_t count) {
    REQUIRE(kv.grow(sequence.residency.tables, sequence.progress.computed + count));
    sequence.take.tokens = count;
  }
  const IterationPlan& write() { return *plans.write(0); }

  SchedulerConfig config = config_of();
  KvSpace kv{config.kv_pools};
  Prefixes prefixes{config, kv};
  Running running{4, 2};
  PlanWriter plans{config, kv, prefixes, running};
  std::vector<std::unique_ptr<Sequence>> owned;
};

std::vector<RowUpdateKind> kinds(const IterationPlan& plan) {
  std::vector<RowUpdateKind> kinds;
  for (const RowUpdate& update : plan.row_updates) kinds.push_back(update.kind);
  return kinds;
}

using enum RowUpdateKind;

}  // namespace

TEST_CASE("a row's plan has its tokens, and moves its counts on") {
  Room room;
  Sequence& sequence = room.run(request_of(7, 6));
  room.take(sequence, 4);
  const IterationPlan& chunk = room.write();
  REQUIRE(chunk.rows.size() == 1);
  CHECK(chunk.rows[0].request_id == 7);
  CHECK(chunk.rows[0].start == 0);
  CHECK(chunk.rows[0].num_tokens == 4);
  CHECK(chunk.rows[0].num_samples == 0);
  CHECK(chunk.tokens == std::vector<int32_t>(4, 7));
  CHECK(chunk.work.chunk_pairs == 10);
  CHECK(sequence.progress.computed == 4);
  CHECK(sequence.take.tokens == 0);
  CHECK(sequence.state() == RequestState::kPrefilling);
  room.plans.note_commit(chunk);

  room.take(sequence, 2);
  const IterationPlan& end = room.write();
  REQUIRE(end.samples.size() == 1);
  CHECK(end.samples[0].token_offset == 1);
  CHECK(end.samples[0].output_position == 0);
  CHECK(sequence.progress.in_flight == InFlight{1, 1});
  CHECK(sequence.state() == RequestState::kDecoding);

  room.take(sequence, 1);  // one step ahead
  const IterationPlan& ahead = room.write();
  CHECK(ahead.tokens == std::vector<int32_t>{kLastSampled});
  CHECK(ahead.samples[0].output_position == 1);
  CHECK(ahead.work.decode_keys == 7);
  CHECK(sequence.progress.in_flight == InFlight{2, 2});
}

TEST_CASE("parameters go out with a row's first plan, and each table entry once") {
  Room room;
  Sequence& sequence = room.run(request_of(1, 16));
  room.take(sequence, 4);
  CHECK(kinds(room.write()) == std::vector{kSet, kPatchTable});
  CHECK(sequence.residency.row_is_set);
  room.take(sequence, 6);
  const IterationPlan& plan = room.write();
  REQUIRE(kinds(plan) == std::vector{kPatchTable});
  CHECK(plan.row_updates[0].arg0 == 1);  // from entry 1
  CHECK(plan.row_updates[0].payload_words == 2);
  CHECK(plan.row_payload[plan.row_updates[0].payload_first] == sequence.residency.tables[0].blocks[1]);
  room.plans.forget_in_flight();
  room.take(sequence, 1);
  CHECK(kinds(room.write()).empty());
}

TEST_CASE("counts for penalties are sent with the whole known text, and cleared slots come first") {
  Room room;
  Sequence& old = room.run(request_of(1, 4));
  room.take(old, 4);
  room.plans.note_commit(room.write());
  room.kv.release(old.residency.tables);
  room.running.release(old);
  Request request = request_of(2, 3);
  request.sampling.presence_penalty = 1;
  Sequence& sequence = room.run(request);
  sequence.tokens.push_back(9);  // it goes on after a preemption
  sequence.record.num_preemptions = 1;
  room.take(sequence, 4);
  const IterationPlan& plan = room.write();
  REQUIRE(kinds(plan) == std::vector{kClear, kSet, kRecount, kPatchTable});
  CHECK(plan.row_updates[2].arg1 == 3);  // of these, prompt
  CHECK(plan.row_updates[2].payload_words == 4);
  CHECK(plan.tokens == std::vector<int32_t>{2, 2, 2, 9});  // what is known does not come from the device
  CHECK(room.running.slots_to_clear().empty());
}

TEST_CASE("a row's parameters are those of its request") {
  Room room;
  Request request = request_of(1, 4);
  request.sampling.temperature = 0.5f;
  request.sampling.seed = 0x1234'5678'9abc'def0;
  request.sampling.branch = 3;
  room.take(room.run(request), 4);
  const IterationPlan& plan = room.write();
  RowSampling row;
  REQUIRE(plan.row_updates[0].payload_words == sizeof(row) / 4);
  std::memcpy(static_cast<void*>(&row), plan.row_payload.data() + plan.row_updates[0].payload_first, sizeof(row));
  CHECK(row.temperature == 0.5f);
  CHECK(row.seed_lo == 0x9abc'def0);
  CHECK(row.seed_hi == 0x1234'5678);
  CHECK(row.branch == 3);
  CHECK(row.penalty_slot == -1);
}

TEST_CASE("rows that take nothing are not in the plan") {
  Room room;
  room.run(request_of(1, 4));
  Sequence& takes = room.run(request_of(2, 4));
  room.take(takes, 2);
  const IterationPlan& plan = room.write();
  REQUIRE(plan.rows.size() == 1);
  CHECK(plan.rows[0].request_id == 2);
  CHECK(plan.rows[0].slot == 1);
}

TEST_CASE("prompt tokens are scored once, each by the token before it") {
  Room room;
  Request request = request_of(1, 4);
  request.prompt = {10, 11, 12, 13};
  request.sampling.logprobs = 0;
  request.sampling.prompt_logprobs = true;
  Sequence& sequence = room.run(request);
  room.take(sequence, 4);
  const IterationPlan& plan = room.write();
  REQUIRE(plan.samples.size() == 4);
  CHECK(plan.samples[0].kind == TailKind::kScore);
  CHECK(plan.samples[0].forced_token == 11);
  CHECK(plan.samples[2].forced_token == 13);
  CHECK(plan.samples[2].token_offset == 2);
  CHECK(plan.samples[3].kind == TailKind::kSample);
  CHECK(sequence.progress.scored == 4);
  room.plans.note_commit(plan);
  sequence.progress = {.computed = 0, .scored = 4};  // preempted
  room.take(sequence, 4);
  CHECK(room.write().samples.size() == 1);
}

TEST_CASE("blocks that go to the host tier and come from it are in the plan") {
  SchedulerConfig config;
  config.kv_pools = {{4, 4}};
  KvSpace kv(config.kv_pools, PrefixCacheKind::kHashed, {.num_blocks = 4, .stores_max = 4});
  Prefixes prefixes(config, kv);
  Running running(4, 0);
  PlanWriter plans(config, kv, prefixes, running);
  const auto run = [&](Sequence& sequence, uint32_t count) {
    sequence.move_to(RequestState::kPrefilling);
    running.admit(sequence);
    sequence.residency.tables = kv.make_tables(16);
    prefixes.take_over(sequence, prefixes.look_up(sequence, {}));
    REQUIRE(kv.grow(sequence.residency.tables, sequence.progress.computed + count));
    sequence.take.tokens = count;
    return plans.write(0);
  };
  Sequence first(request_of(1, 4)), other(request_of(2, 16)), again(request_of(3, 8));
  CHECK(run(first, 4)->block_stores.empty());
  const BlockId block = first.residency.tables[0].blocks[0];
  prefixes.give_back(first, /*forget=*/false, /*is_worth_storing=*/true);
  running.release(first);
  plans.forget_in_flight();
  const IterationPlan& takes_all = *run(other, 16);
  REQUIRE(takes_all.block_stores.size() == 1);
  CHECK(takes_all.block_stores[0].source == block);
  CHECK(takes_all.block_stores[0].num_tokens == 4);
  CHECK(takes_all.work.stores == 1);
  kv.release(other.residency.tables, /*forget=*/true);
  running.release(other);
  plans.forget_in_flight();
  again.tokens = first.tokens;
  again.tokens.resize(8, 3);
  again.progress.computed = 4;
  const IterationPlan& loads = *run(again, 4);
  REQUIRE(loads.block_loads.size() == 1);
  CHECK(loads.block_loads[0].source == takes_all.block_stores[0].target);
  CHECK(loads.block_loads[0].target == again.residency.tables[0].blocks[0]);
  CHECK(loads.work.loads == 1);
}

TEST_CASE("a copy is in the next plan, and its source is free then") {
  Room room;
  room.owned.push_back(std::make_unique<Sequence>(request_of(2, 8), /*branch_idx=*/1));
  Sequence& sequence = room.start(*room.owned.back());
  REQUIRE(room.kv.grow(sequence.residency.tables, 4));
  auto source = room.kv.make_tables(4);
  REQUIRE(room.kv.grow(source, 4));
  const BlockId block = source[0].blocks[0];
  room.kv.pin(block);
  room.kv.release(source);
  const uint32_t free = room.kv.num_free(0);
  sequence.progress.computed = 3;
  sequence.residency.copy_source = block;
  sequence.residency.copy_tokens = 3;
  room.take(sequence, 5);
  const IterationPlan& plan = room.write();
  REQUIRE(plan.block_copies.size() == 1);
  CHECK(plan.block_copies[0].source == block);
  CHECK(plan.block_copies[0].target == sequence.residency.tables[0].blocks[0]);
  CHECK(plan.block_copies[0].num_tokens == 3);
  CHECK(sequence.residency.copy_tokens == 0);
  CHECK(room.kv.num_free(0) == free);  // one was taken for the second block, one let go
}

TEST_CASE("two plans may be in flight, numbered from 1 and committed in order") {
  Room room;
  Sequence& sequence = room.run(request_of(1, 12));
  CHECK_FALSE(room.plans.has_in_flight());
  room.take(sequence, 4);
  const IterationPlan& first = room.write();
  room.take(sequence, 4);
  const IterationPlan& second = *room.plans.write(/*batch=*/5);
  CHECK(first.step == 1);
  CHECK(second.step == 2);
  CHECK(second.batch == 5);
  CHECK_FALSE(room.plans.may_write());
  CHECK(first.rows[0].start == 0);  // unchanged
  room.plans.note_commit(first);
  CHECK(room.plans.may_write());
  CHECK(room.plans.has_in_flight());
  room.plans.note_commit(second);
  CHECK_FALSE(room.plans.has_in_flight());
}

namespace {

// Bans its one token, or is not ready.
struct Mask final : LogitsProcessor {
  mutable bool is_late = false;
  std::string_view name() const override { return "mask"; }
  bool is_ready(std::span<const int32_t>, uint32_t) const override { return !is_late; }
  void process(std::span<const int32_t> tokens, uint32_t, std::vector<TokenBias>* changes) const override {
    changes->push_back({tokens.back() + 1, kBan});
  }
};

// Three rows that have each drawn a token, which is in flight; the middle one has a mask.
struct TailRoom : Room {
  TailRoom() {
    for (RequestId id = 1; id <= 3; ++id) {
      Request request = request_of(id, 3, 20);
      if (id == 2) request.processors = {mask};
      take(run(request), 3);
    }
    first = &write();
    for (auto& sequence : owned) take(*sequence, 1);
    second = &write();
  }
  // The results of the first plan.
  void commit() {
    plans.note_commit(*first);
    for (auto& sequence : owned) {
      sequence->tokens.push_back(10 * static_cast<int32_t>(sequence->request.id));
      sequence->progress.in_flight.drop_draw();
    }
  }
  std::shared_ptr<Mask> mask = std::make_shared<Mask>();
  const IterationPlan* first = nullptr;
  const IterationPlan* second = nullptr;
};

}  // namespace

TEST_CASE("a tail that waits is completed from the token that has come meanwhile") {
  TailRoom room;
  CHECK(room.first->is_complete());
  CHECK(room.second->late_rows == std::vector<uint32_t>{1});
  CHECK(room.second->bias.empty());
  CHECK(room.plans.draws_in_flight().certain == std::vector<RequestId>{1, 1, 2, 2, 3, 3});
  room.commit();
  CHECK(room.plans.write_tail(*room.second) == 0);
  CHECK(room.second->is_complete());
  REQUIRE(room.second->bias.size() == 1);
  CHECK(room.second->bias[0].token == 21);
  CHECK(room.second->samples[1].changes.num_bias == 1);
  CHECK(room.second->samples.size() == 3);
}

TEST_CASE("a late row is parked alone: its sample is left out, and its last position is computed again") {
  TailRoom room;
  room.commit();
  room.mask->is_late = true;
  CHECK(room.plans.write_tail(*room.second) == 1);
  Sequence& parked = *room.owned[1];
  CHECK(parked.progress.in_flight.is_empty());
  CHECK(parked.progress.computed == 3);
  CHECK(parked.progress.undone == 1);
  CHECK(parked.gap() == 1);
  REQUIRE(room.second->samples.size() == 2);
  CHECK(room.second->rows[1].num_samples == 0);
  CHECK(room.second->rows[2].sample_first == 1);
  CHECK(room.plans.draws_in_flight().certain == std::vector<RequestId>{1, 3});
  room.mask->is_late = false;
  room.take(parked, 1);
  const IterationPlan& again = room.write();
  CHECK(again.rows[0].start == 3);
  CHECK(again.tokens == std::vector<int32_t>{20});  // known by now
  CHECK(again.samples[0].output_position == 1);
  CHECK(parked.progress.undone == 0);
}

TEST_CASE("the draw of a row that has ended stays in its tail, without changes") {
  TailRoom room;
  room.commit();
  room.kv.release(room.owned[1]->residency.tables);
  room.running.release(*room.owned[1]);
  CHECK(room.plans.write_tail(*room.second) == 0);
  CHECK(room.second->samples.size() == 3);
  CHECK(room.second->samples[1].changes.num_bias == 0);
}
