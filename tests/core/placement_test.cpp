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
  worker.blocks_total = worker.blocks_free = 4000;
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

TEST_CASE("a worker without a row or blocks to spare is as far away as the ends that they take") {
  const PlacementConfig config{.ttft_target_ms = 1000, .tpot_target_ms = 50};
  WorkerFacts full = fast();
  full.num_running = 63;
  full.answer_tokens = 200;
  CHECK(chosen({full, slow()}, {100, 100}, config) == 0);
  SECTION("rows") {
    full.num_running = 64;
    full.num_waiting = 60;
  }
  SECTION("blocks") {
    full.blocks_free = 10;
    full.num_waiting = 30;
  }
  CHECK(chosen({full, slow()}, {100, 100}, config) == 1);
  const std::vector<WorkerFacts> both = {full, slow()};
  const PlacementChoice choice = place(config, {100, 100}, both, 0);
  CHECK(choice.terms[0].wait_ms > 900);
  CHECK(choice.terms[1].wait_ms == 0);
}

TEST_CASE("blocks that are missing count by what a running row gives back") {
  const PlacementConfig config{.ttft_target_ms = 1000, .tpot_target_ms = 50};
  WorkerFacts full = fast();
  full.num_running = 30;  // of 133 blocks each
  full.answer_tokens = 2000;
  full.blocks_free = 10;
  const std::vector<WorkerFacts> both = {full, slow()};
  const PlacementChoice choice = place(config, {3000, 100}, both, 0);
  CHECK(choice.worker == 1u);
  CHECK(choice.terms[0].wait_ms > 700);
}

TEST_CASE("a worker that is late at each token is not in time, however soon it begins") {
  const PlacementConfig config{.ttft_target_ms = 1000, .tpot_target_ms = 20};
  WorkerFacts queued = fast();
  queued.waiting_tokens = 12'000;  // 600 ms, and 6 for each token
  CHECK(chosen({slow(), queued}, {100, 100}, config) == 1);
}

TEST_CASE("the later tokens of a long prompt cost more, and rows that run wait for them") {
  const PlacementConfig config{.ttft_target_ms = 2000, .tpot_target_ms = 25, .long_tokens = 1000};
  WorkerFacts deep = fast();
  deep.prefill_pair_ms = 1e-4;
  const std::vector<WorkerFacts> both = {deep, fast()};
  const PlacementChoice choice = place(config, {6000, 100}, both, 0);
  CHECK(choice.worker == 1u);
  CHECK(choice.terms[0].ttft_ms > choice.terms[1].ttft_ms + 1000);
  CHECK(place(config, {2000, 100}, both, 0).terms[0].ttft_ms == place(config, {2000, 100}, both, 0).terms[1].ttft_ms);
  // 300 ms of prompt, between the tokens of answers that have room for 20 x 14.5.
  WorkerFacts answers = fast();
  answers.num_running = 8;
  answers.answer_tokens = 20;
  CHECK(place(config, {6000, 100}, std::vector{answers, slow()}, 0).terms[0].others_ms > 0);
  CHECK(place(config, {4000, 100}, std::vector{answers, slow()}, 0).terms[0].others_ms == 0);
}

TEST_CASE("what is late everywhere goes where it costs the fewest answers in time") {
  const PlacementConfig config{.ttft_target_ms = 300, .tpot_target_ms = 40};
  WorkerFacts late_fast = fast(), late_slow = slow();
  late_fast.waiting_tokens = 8000;  // late by 100 ms
  late_slow.waiting_tokens = 8000;  // by 500
  CHECK(chosen({late_fast, late_slow}, {100, 20}, config) == 1);
  CHECK(chosen({late_fast, late_slow}, {100, 20}) == 0);
  SECTION("of equal ones to the later one") {
    WorkerFacts later = late_fast;
    later.waiting_tokens = 20'000;
    CHECK(chosen({late_fast, later}, {100, 20}, config) == 1);
  }
  SECTION("to one that never is in time before all") {
    WorkerFacts crawls = slow();
    crawls.decode_ms = 60;
    crawls.decode_more_ms = 61;
    CHECK(chosen({late_fast, late_slow, crawls}, {100, 20}, config) == 2);
  }
  SECTION("but not for ever") {
    late_slow.waiting_tokens = 300'000;
    CHECK(chosen({late_fast, late_slow}, {100, 20}, config) == 0);
  }
  SECTION("long ones to where they are least late, for they are late by themselves") {
    CHECK(chosen({late_fast, late_slow}, {8100, 20}, config) == 1);
    CHECK(chosen({late_fast, late_slow}, {8100, 92},
                 {.ttft_target_ms = 300, .tpot_target_ms = 40, .long_tokens = 8000}) == 0);
  }
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
