// What the journal says of branches and steps. Method: one branch is led through its life by hand.
#include <catch2/catch_test_macros.hpp>

#include "core/schedule/journal.h"
#include "schedule_parts.h"

using namespace llmrt;
using test::request_of;

namespace {

constexpr TimeNs kMs = 1'000'000;

}  // namespace

TEST_CASE("events keep their order, carry the branch's id and time, and are taken once") {
  Journal journal({});
  Sequence sequence(request_of(7), /*branch_idx=*/2);
  journal.tell(sequence, {{.token = 5}}, 3);
  journal.tell(sequence, {{.token = 6, .finish = FinishReason::kEos}}, 4);
  std::vector<TokenEvent> events;
  journal.take_events(&events);
  REQUIRE(events.size() == 2);
  CHECK(events[0].request_id == 7);
  CHECK(events[0].branch == 2);
  CHECK(events[0].token == 5);
  CHECK(events[0].time_ns == 3);
  CHECK(events[1].finish == FinishReason::kEos);

  journal.take_events(&events);  // nothing new; what was taken stays
  CHECK(events.size() == 2);
  journal.tell(sequence, {{.token = 8}}, 5);
  journal.take_events(&events);
  REQUIRE(events.size() == 3);
  CHECK(events[2].token == 8);
}

TEST_CASE("a branch's times and late tokens follow from when its tokens came") {
  Journal journal({.ttft_ms = 50, .tpot_ms = 15});
  KvSpace kv(std::vector<KvPoolSize>{{8, 4}});
  Request request = request_of(1);
  request.names.answer = std::string("as its client knows it");
  request.names.trace_id = std::string("as its tracer does");
  request.arrival_ns = 0;
  Sequence sequence(std::move(request));
  Sequence* const running[] = {&sequence};
  test::make_resident(sequence, 0, 1);
  sequence.residency.tables[0].blocks = {3, 4};
  sequence.progress.computed = 5;

  journal.note_arrival(sequence, 10 * kMs);
  IterationPlan plan;
  plan.work = {.tokens = 5};
  plan.block_stores.resize(2);
  journal.note_plan(plan, running, std::vector<KvPoolSize>{{8, 4}}, 20 * kMs);
  journal.note_plan(plan, running, std::vector<KvPoolSize>{{8, 4}}, 30 * kMs);  // only the first admits it
  sequence.tokens.push_back(1);
  journal.note_token(sequence, 60 * kMs);
  sequence.tokens.push_back(2);
  journal.note_token(sequence, 80 * kMs);

  const BranchCounts one{.num_running = 1};
  CHECK(journal.stats(one, kv).num_answering == 1);
  CHECK(journal.stats(one, kv).table_slots == 8);
  CHECK(journal.stats(one, kv).table_tokens == 5);
  journal.note_end(sequence, FinishReason::kLength, 90 * kMs);
  journal.trace(sequence);

  const EngineStats& stats = journal.stats({}, kv);
  CHECK(stats.generated_tokens == 2);
  CHECK(stats.num_answering == 0);
  CHECK(stats.finished[static_cast<size_t>(FinishReason::kLength)] == 1);
  CHECK(stats.num_ttft_late == 1);  // 60 ms from its arrival
  CHECK(stats.num_tpot_late == 1);  // 20 ms a token
  CHECK(stats.blocks_stored == 4);
  CHECK(stats.table_slots == 0);  // nothing runs any more
  CHECK(stats.blocks_free == 8);

  std::vector<RequestTrace> traces;
  journal.take_traces(&traces);
  REQUIRE(traces.size() == 1);
  CHECK(traces[0].names.answer == "as its client knows it");
  CHECK(traces[0].names.trace_id == "as its tracer does");
  CHECK(traces[0].output_tokens == 2);
  CHECK(traces[0].kv_blocks_peak == 2);
  CHECK(traces[0].queue_ms == 20);
  CHECK(traces[0].ttft_ms == 60);
  CHECK(traces[0].tpot_ms == 20);
  journal.take_traces(&traces);
  CHECK(traces.size() == 1);
}

TEST_CASE("the answer of a beam search counts when it comes, and its steps count as no tokens") {
  Journal journal({});
  KvSpace kv(std::vector<KvPoolSize>{{8, 4}});
  Request request = request_of(1);
  request.beam = BeamParams{};
  Sequence sequence(std::move(request));
  sequence.beam.search = std::make_shared<BeamSearch>(1, BeamParams{}, 8, std::vector<int32_t>{});
  journal.note_arrival(sequence, 0);
  sequence.record.times.add_token(kMs);
  journal.note_answer(sequence, 6, 2 * kMs);
  journal.note_end(sequence, FinishReason::kEos, 2 * kMs);
  CHECK(journal.stats({}, kv).generated_tokens == 6);
  CHECK(sequence.record.num_answered == 6);
  CHECK(journal.stats({}, kv).num_answering == 0);
}

TEST_CASE("preemptions are told in order and counted by kind") {
  Journal journal({});
  KvSpace kv(std::vector<KvPoolSize>{{8, 4}});
  journal.note_preemption({.request_id = 1, .wanted_by = 2, .computed_tokens = 3, .num_blocks = 1, .times = 1}, true);
  journal.note_preemption(
      {.request_id = 2, .wanted_by = 2, .computed_tokens = 3, .num_blocks = 1, .times = 1, .swapped = true}, false);
  std::vector<Preemption> preemptions;
  journal.take_preemptions(&preemptions);
  REQUIRE(preemptions.size() == 2);
  CHECK(preemptions[1].request_id == 2);
  CHECK(journal.stats({}, kv).num_preemptions == 2);
  CHECK(journal.stats({}, kv).num_outgrown == 1);
  CHECK(journal.stats({}, kv).num_swaps == 1);
  journal.take_preemptions(&preemptions);
  CHECK(preemptions.size() == 2);
}
