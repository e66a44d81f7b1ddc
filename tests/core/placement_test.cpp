// Aim: a request goes where it comes least late, never where it cannot be served, and the decision tells why.
// Method: workers made up, each term changed alone.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/router/placement.h"

using namespace llmrt;
using Catch::Matchers::ContainsSubstring;

namespace {

// Twice as fast as `slow`.
WorkerFacts fast() {
  WorkerFacts worker;
  worker.context_max = 8192;
  worker.blocks_total = worker.blocks_free = 1000;
  worker.sequences_max = 64;
  worker.batch_invariant = true;
  worker.prefill_tokens_ms = 20;
  worker.decode_ms = 10;
  worker.decode_more_ms = 10.5;
  return worker;
}
WorkerFacts slow() {
  WorkerFacts worker = fast();
  worker.prefill_tokens_ms = 10;
  worker.decode_ms = 20;
  worker.decode_more_ms = 21;
  return worker;
}

uint32_t chosen(const std::vector<WorkerFacts>& workers, const PlacementAsk& ask = {1000, 100},
                const PlacementConfig& config = {}) {
  const PlacementChoice choice = place(config, ask, workers, 0);
  REQUIRE(choice.worker);
  return *choice.worker;
}

}  // namespace

TEST_CASE("the worker by which a request comes least late is taken") {
  CHECK(chosen({slow(), fast()}) == 1);
  CHECK(chosen({fast(), slow()}) == 0);
  WorkerFacts queued = fast();
  SECTION("prompts that wait") {
    queued.waiting_tokens = 100'000;
  }
  SECTION("prompts of rows that run") {
    queued.prompt_tokens_left = 100'000;
  }
  SECTION("rows that make steps long") {
    queued.decode_more_ms = 60;
  }
  SECTION("rows that will") {
    queued.num_waiting = 60;
    queued.decode_more_ms = 12;
  }
  CHECK(chosen({queued, slow()}) == 1);
}

TEST_CASE("within the targets all are as good, and the faster one is taken; beyond them lateness counts") {
  const PlacementConfig easy{.ttft_target_ms = 1e6, .tpot_target_ms = 1e6};
  CHECK(chosen({slow(), fast()}, {1000, 100}, easy) == 1);
  const PlacementChoice choice = place(easy, {1000, 100}, std::vector{slow(), fast()}, 0);
  CHECK(choice.terms[0].late_ms == 0);
  // The fast one's queue makes it late at the first token, the slow one is late at each.
  WorkerFacts queued = fast();
  queued.waiting_tokens = 20'000;
  const PlacementConfig of_tokens{.ttft_target_ms = 2000, .tpot_target_ms = 15};
  CHECK(chosen({queued, slow()}, {1000, 1000}, of_tokens) == 0);
  const PlacementConfig of_first{.ttft_target_ms = 200, .tpot_target_ms = 50};
  CHECK(chosen({queued, slow()}, {1000, 1000}, of_first) == 1);
}

TEST_CASE("a prompt that is cached somewhere need not be computed there") {
  WorkerFacts knows = slow();
  knows.cached_tokens = 8000;
  CHECK(chosen({fast(), knows}, {8000, 4}) == 1);
  CHECK(chosen({fast(), slow()}, {8000, 4}) == 0);
}

TEST_CASE("a worker that cannot serve a request is left out, and says why") {
  const auto reason = [](auto change, PlacementAsk ask) {
    WorkerFacts worker = fast();
    change(worker);
    const std::vector<WorkerFacts> both = {worker, slow()};
    const PlacementChoice choice = place({}, ask, both, 0);
    CHECK(choice.worker == 1u);
    const PlacementChoice none = place({}, ask, std::span(both).first(1), 0);
    CHECK_FALSE(none.worker);
    const std::string names[] = {"one"};
    return describe(none, names);
  };
  CHECK_THAT(reason([](WorkerFacts& w) { w.context_max = 1000; }, {1000, 100}),
             ContainsSubstring("one: context: expected 1100, found 1000"));
  CHECK_THAT(reason([](WorkerFacts& w) { w.blocks_total = 60; }, {1000, 100}),
             ContainsSubstring("KV pool: expected 69 blocks, found 60"));
  CHECK_THAT(reason([](WorkerFacts& w) { w.batch_invariant = false; }, {1000, 100, 1, true}),
             ContainsSubstring("batch-invariant"));
  CHECK_THAT(reason([](WorkerFacts& w) { w.unusable = "it is drained"; }, {1000, 100}), ContainsSubstring("drained"));
  PlacementAsk adapted{1000, 100};
  adapted.has_adapter = true;
  std::vector<WorkerFacts> workers = {fast(), slow()};
  workers[1].adapter_slots = 4;
  CHECK(chosen(workers, adapted) == 1);
  PlacementAsk drafted{1000, 100};
  drafted.wants_draft_model = true;
  workers[1].has_draft_model = true;
  CHECK(chosen(workers, drafted) == 1);
}

TEST_CASE("blocks of a large worker are kept for long requests, but as a last resort") {
  WorkerFacts large = fast(), small = slow();
  large.blocks_total = 10'000;
  large.blocks_free = 2000;  // under a quarter
  large.context_max = 160'000;
  CHECK(chosen({large, small}, {1000, 100}) == 1);
  CHECK(chosen({large, small}, {20'000, 100}) == 0);  // a long one
  small.unusable = "its engine is lost";
  CHECK(chosen({large, small}, {1000, 100}) == 0);
  small.unusable.clear();
  large.blocks_free = 9000;
  CHECK(chosen({large, small}, {1000, 100}) == 0);
}

TEST_CASE("a worker of which nothing is known yet is tried") {
  WorkerFacts unknown = fast();
  unknown.prefill_tokens_ms = unknown.decode_ms = unknown.decode_more_ms = 0;
  WorkerFacts busy = fast();
  busy.num_running = 10;
  busy.waiting_tokens = 5000;
  CHECK(chosen({busy, unknown}) == 1);
  // Of two the one with fewer rows.
  WorkerFacts other = unknown;
  other.num_running = 3;
  CHECK(chosen({other, unknown}) == 1);
}

TEST_CASE("round robin takes turns, least load counts branches") {
  const std::vector<WorkerFacts> workers = {slow(), fast(), slow()};
  for (uint64_t turn = 0; turn < 7; ++turn)
    CHECK(place({.policy = PlacementPolicy::kRoundRobin}, {1000, 100}, workers, turn).worker == turn % 3);
  std::vector<WorkerFacts> loaded = workers;
  loaded[0].num_running = 2;
  loaded[1].num_running = 3;
  loaded[2].num_waiting = 4;
  CHECK(chosen(loaded, {1000, 100}, {.policy = PlacementPolicy::kLeastLoad}) == 0);
  for (const PlacementPolicy policy :
       {PlacementPolicy::kLateness, PlacementPolicy::kLeastLoad, PlacementPolicy::kRoundRobin})
    CHECK(parse_placement_policy(placement_policy_name(policy)) == policy);
  CHECK_FALSE(parse_placement_policy("other"));
}
