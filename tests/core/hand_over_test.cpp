// Aim: a prompt is computed by one engine for another where roles or loads say so, and never for one that cannot go on.
// Method: workers made up, through place().
#include <catch2/catch_test_macros.hpp>

#include "core/router/hand_over.h"

namespace llmrt {
namespace {

constexpr WorkerRole kBoth = WorkerRole::kBoth, kPrefill = WorkerRole::kPrefill, kDecode = WorkerRole::kDecode;

WorkerFacts worker_of(double prefill_tokens_ms, double step_ms) {
  WorkerFacts worker;
  worker.context_max = 8192;
  worker.blocks_total = worker.blocks_free = 1000;
  worker.sequences_max = 64;
  worker.prefill_tokens_ms = prefill_tokens_ms;
  worker.decode_ms = worker.decode_more_ms = step_ms;
  return worker;
}

constexpr PlacementAsk kAsk{1000, 100};

PhaseChoice first_of(const HandOverRule& rule, const std::vector<WorkerFacts>& workers,
                     const PlacementAsk& ask = kAsk) {
  const PlacementChoice alone = place({}, ask, workers, 0);
  REQUIRE(alone.worker);
  return choose_prefill(rule, ask, alone);
}
std::optional<uint32_t> next_of(const HandOverRule& rule, uint32_t from, const std::vector<WorkerFacts>& workers) {
  return choose_decode(rule, from, kAsk, place({}, kAsk, workers, 0));
}

}  // namespace

TEST_CASE("roles say who computes prompts and who goes on") {
  const HandOverRule rule{.roles = {kDecode, kPrefill, kPrefill}};
  const std::vector<WorkerFacts> workers = {worker_of(5, 5), worker_of(10, 50), worker_of(20, 50)};
  const PhaseChoice first = first_of(rule, workers);
  CHECK(first.worker == 2);
  CHECK(first.gives);
  CHECK(next_of(rule, 2, workers) == 0u);
}

TEST_CASE("one that does both is taken where it is done earlier alone") {
  const HandOverRule rule{.roles = {kBoth, kPrefill, kDecode}};
  // A step and 1000 / 10 + 100 * 10 = 1110 alone; a step and 1000 / 12 + 100 * 9 = 1033 by two.
  std::vector<WorkerFacts> workers = {worker_of(10, 10), worker_of(12, 50), worker_of(1, 9)};
  CHECK(first_of(rule, workers).gives);
  workers[2] = worker_of(1, 12);
  const PhaseChoice alone = first_of(rule, workers);
  CHECK(alone.worker == 0);
  CHECK_FALSE(alone.gives);
}

TEST_CASE("between two that do both it is by load, and where it is clearly less") {
  HandOverRule rule{.roles = {kBoth, kBoth}};
  // Alone 1000 / 100 + 100 * 20 = 2010, 1000 / 2 + 100 * 10 = 1500; by two 1010.
  std::vector<WorkerFacts> workers = {worker_of(100, 20), worker_of(2, 10)};
  CHECK_FALSE(first_of(rule, workers).gives);
  rule.by_load = true;
  const PhaseChoice first = first_of(rule, workers);
  CHECK(first.worker == 0);
  CHECK(first.gives);
  CHECK(next_of(rule, 0, workers) == 1u);
  SECTION("the way of the blocks counts") {
    rule.token_ms = 1;
    CHECK_FALSE(first_of(rule, workers).gives);
  }
  SECTION("a bit less is not enough") {
    workers[1] = worker_of(5, 10);  // 1200 alone
    CHECK_FALSE(first_of(rule, workers).gives);
    CHECK(first_of(rule, workers).worker == 1);
  }
}

TEST_CASE("without its other half a role does the whole request") {
  const HandOverRule rule{.roles = {kPrefill, kDecode}};
  std::vector<WorkerFacts> workers = {worker_of(10, 10), worker_of(10, 10)};
  SECTION("nobody goes on") {
    workers[1].unusable = "lost";
    const PhaseChoice first = first_of(rule, workers);
    CHECK(first.worker == 0);
    CHECK_FALSE(first.gives);
    CHECK_FALSE(next_of(rule, 0, workers));
  }
  SECTION("nobody computes prompts") {
    workers[0].unusable = "lost";
    const PhaseChoice first = first_of(rule, workers);
    CHECK(first.worker == 1);
    CHECK_FALSE(first.gives);
  }
}

TEST_CASE("behind the prompt the one that is done first goes on, maybe the same") {
  const HandOverRule rule{.roles = {kBoth, kDecode, kDecode}};
  std::vector<WorkerFacts> workers = {worker_of(10, 10), worker_of(10, 9), worker_of(10, 8)};
  for (WorkerFacts& worker : workers) worker.cached_tokens = kAsk.prompt_tokens;
  CHECK(next_of(rule, 0, workers) == 2u);
  workers[2].unusable = "drained";
  CHECK(next_of(rule, 0, workers) == 1u);
  workers[1].decode_ms = workers[1].decode_more_ms = 30;
  CHECK_FALSE(next_of(rule, 0, workers));
}

}  // namespace llmrt
