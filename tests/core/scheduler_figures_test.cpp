// What the scheduler counts about the KV pool and its batches. Method: requests by hand, plain loop, no prefix cache.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <map>
#include <random>

#include "core/schedule/scheduler.h"

using namespace llmrt;
using Catch::Matchers::WithinAbs;

namespace {

constexpr uint32_t kBlockTokens = 16;

struct Running {
  explicit Running(uint32_t num_blocks) : scheduler(config_of(num_blocks)) {}
  static SchedulerConfig config_of(uint32_t num_blocks) {
    SchedulerConfig config;
    config.context_max = config.step_tokens_max = 4096;
    config.watermark = 0;
    config.reserve_output_tokens = 16;
    config.kv_pools = {{num_blocks, kBlockTokens}};
    return config;
  }
  void add(uint32_t num_prompt, uint32_t max_tokens) {
    Request request;
    request.id = ++last_id;
    request.prompt.assign(num_prompt, 1);
    request.max_tokens = max_tokens;
    tokens_left[last_id] = max_tokens;
    scheduler.add(std::move(request), 0);
  }
  // Null when nothing is left to do.
  const IterationPlan* plan() { return scheduler.plan(0); }
  void commit(const IterationPlan& plan) {
    std::vector<Verdict> verdicts(plan.samples.size());
    for (const PlanRow& row : plan.rows) {
      for (uint32_t i = row.sample_first; i < row.sample_first + row.num_samples; ++i) {
        verdicts[i].token = 1;
        if (--tokens_left[row.request_id] == 0) verdicts[i].finish = FinishReason::kLength;
      }
    }
    scheduler.commit(plan, verdicts, 0);
    REQUIRE(scheduler.check_books().ok());
  }
  Scheduler scheduler;
  RequestId last_id = 0;
  std::map<RequestId, uint32_t> tokens_left;
};

double use(const EngineStats& stats) {
  return static_cast<double>(stats.table_tokens) / static_cast<double>(stats.table_slots);
}

}  // namespace

TEST_CASE("ten sequences take exactly the blocks that their tokens need: 180, of which 98.47 % are used") {
  Running run(1000);
  const std::vector<uint32_t> lengths = {47, 183, 12, 891, 256, 5, 1024, 73, 330, 15};
  for (const uint32_t length : lengths) run.add(length, 10);
  const IterationPlan* plan = run.plan();  // all prompts in one step
  REQUIRE(plan != nullptr);
  REQUIRE(plan->rows.size() == lengths.size());
  const EngineStats& stats = run.scheduler.stats();
  CHECK(stats.blocks_total - stats.blocks_free == 180);
  CHECK(stats.table_slots == 180 * kBlockTokens);
  CHECK(stats.table_tokens == 2836);
  CHECK(stats.table_slots - stats.table_tokens == 44);  // internal fragmentation, in tokens
  CHECK_THAT(100 * use(stats), WithinAbs(98.47, 0.005));
  CHECK(stats.step_rows.sum() == 10);
  CHECK(stats.step_tokens.sum() == 2836);
  fmt::print("KV waste: ten sequences, {} blocks, U = {:.2f} %\n", stats.blocks_total - stats.blocks_free,
             100 * use(stats));
}

TEST_CASE("at every step a sequence wastes less than a block, in any load") {
  const uint64_t seed = GENERATE(1, 2, 3);
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  Running run(200);  // some have to yield
  double use_sum = 0;
  uint64_t num_steps = 0, num_rows = 0;
  for (int i = 0; i < 60; ++i) run.add(1 + random() % 300, 1 + random() % 200);
  while (const IterationPlan* plan = run.plan()) {
    const EngineStats& stats = run.scheduler.stats();
    REQUIRE(stats.table_slots >= stats.table_tokens);
    REQUIRE(stats.table_slots - stats.table_tokens < uint64_t{stats.num_running} * kBlockTokens);
    REQUIRE(stats.table_slots == uint64_t{stats.blocks_total - stats.blocks_free} * kBlockTokens);
    use_sum += use(stats);
    ++num_steps;
    num_rows += plan->rows.size();
    run.commit(*plan);
  }
  const EngineStats& stats = run.scheduler.stats();
  CHECK(num_steps > 100);
  CHECK(stats.table_slots == 0);
  CHECK(stats.step_rows.count() == num_steps);
  CHECK(stats.step_rows.sum() == static_cast<double>(num_rows));
  CHECK(stats.num_preemptions > 0);
  CHECK(stats.in_system.arrivals() == 60);
  CHECK(stats.in_system.departures() == 60);
  CHECK(stats.in_system.num() == 0);
  fmt::print("KV waste: seed {}, {} steps, mean U = {:.2f} %\n", seed, num_steps,
             100 * use_sum / static_cast<double>(num_steps));
}
