// The CPU budget of a step: plan + commit <= 100 us at 256 running rows, <= 300 us at 1,024, and no allocation in the
// steady state, with a prefix cache and without. Method: all rows decode one step ahead, each its own text; operator
// new counts; the median of the steps is compared.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <cstdlib>
#include <new>

#include "core/schedule/scheduler.h"

namespace {
std::atomic<uint64_t> num_allocations = 0;
}

#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // malloc below new, free below delete: they do match
void* operator new(size_t bytes) {
  ++num_allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

using namespace llmrt;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kInstrumented = true;  // times mean nothing then
#else
constexpr bool kInstrumented = false;
#endif

TEST_CASE("plan and commit keep within the CPU budget and allocate nothing") {
  struct Row {
    uint32_t num_rows;
    double budget_us;
  };
  const Row row = GENERATE(Row{256, 100}, Row{1024, 300});
  const bool caches = GENERATE(false, true);
  SchedulerConfig config;
  config.context_max = 4096;
  config.sequences_max = config.sample_rows_max = row.num_rows;
  config.kv_pools = {{row.num_rows * 64, 16}};
  if (caches) config.prefix_cache = PrefixCacheKind::kRadix;
  Scheduler scheduler(config);
  for (RequestId id = 1; id <= row.num_rows; ++id) {
    Request request;
    request.id = id;
    request.prompt.assign(16, static_cast<int32_t>(id));
    request.max_tokens = 1000;
    scheduler.add(std::move(request), 0);
  }

  std::vector<Verdict> verdicts;
  std::vector<TokenEvent> events;
  std::vector<double> step_us;
  const IterationPlan* in_flight = scheduler.plan(0);
  constexpr int kWarmUpSteps = 200, kSteps = 500;
  uint64_t allocations_before = 0;
  for (int step = 0; step < kWarmUpSteps + kSteps; ++step) {
    if (step == kWarmUpSteps) {
      step_us.clear();
      step_us.reserve(kSteps);
      allocations_before = num_allocations;
    }
    const auto begin = std::chrono::steady_clock::now();
    const IterationPlan* next = scheduler.plan(step);
    const auto planned = std::chrono::steady_clock::now();
    verdicts.resize(in_flight->samples.size());
    for (Verdict& verdict : verdicts) verdict.token = 1;
    const auto waited = std::chrono::steady_clock::now();
    scheduler.commit(*in_flight, verdicts, step);
    events.clear();
    scheduler.take_events(&events);
    const auto end = std::chrono::steady_clock::now();
    step_us.push_back(std::chrono::duration<double, std::micro>(planned - begin + (end - waited)).count());
    in_flight = next;
  }
  const uint64_t allocations = num_allocations - allocations_before;
  CHECK(in_flight->rows.size() == row.num_rows);
  CHECK(allocations == 0);
  std::sort(step_us.begin(), step_us.end());
  fmt::print("plan + commit at {} rows{}: median {:.1f} us, p99 {:.1f} us (budget {} us)\n", row.num_rows,
             caches ? ", prefix cache" : "", step_us[kSteps / 2], step_us[kSteps * 99 / 100], row.budget_us);
  if (!kInstrumented) CHECK(step_us[kSteps / 2] <= row.budget_us);
}
