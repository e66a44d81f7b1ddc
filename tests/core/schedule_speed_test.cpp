// The CPU budget of a step: plan + commit <= 100 us at 256 running rows, <= 300 us at 1,024, and no allocation in the
// steady state, with a prefix cache and without, and where the tail of each step waits for the newest tokens. Method:
// all rows decode one step ahead, each its own text; operator new counts; what is compared is the median of the best 50
// steps in a row, of a few tries where it is over. A step reads a megabyte or two, and what else a machine or its host
// runs takes their place in caches and doubles its time for minutes: so tests fail beyond 2.5 budgets, and beyond one
// with LLMRT_EXACT_BUDGETS=1, for a machine that does nothing else.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <new>
#include <thread>
#include <vector>

#include "core/schedule/scheduler.h"

namespace {
std::atomic<uint64_t> num_allocations = 0, num_bytes = 0;
}

#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // malloc below new, free below delete: they do match
void* operator new(size_t bytes) {
  ++num_allocations;
  num_bytes += bytes;
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

namespace {

constexpr int kWarmUpSteps = 200, kSteps = 500, kWindowSteps = 50;
constexpr double kSharedMachine = 2.5;

struct Measured {
  double best_us, median_us, p99_us;  // of a step; best: the median of the best kWindowSteps in a row
  uint64_t num_allocations;
};

Measured measure(uint32_t num_rows, bool caches, bool in_beats) {
  SchedulerConfig config;
  config.context_max = 4096;
  config.sequences_max = config.sample_rows_max = num_rows;
  config.kv_pools = {{num_rows * 64, 16}};
  if (caches) config.prefix_cache = PrefixCacheKind::kRadix;
  Scheduler scheduler(config);
  for (RequestId id = 1; id <= num_rows; ++id) {
    Request request;
    request.id = id;
    request.prompt.assign(16, static_cast<int32_t>(id));
    request.max_tokens = 1000;
    if (in_beats) request.sampling.bad_words = {{5, 6}, {1, 7}};
    scheduler.add(std::move(request), 0);
  }

  std::vector<Verdict> verdicts;
  std::vector<TokenEvent> events;
  std::vector<double> step_us;
  const IterationPlan* in_flight = scheduler.plan(0);
  int num_tails = 0;
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
    if (!next->is_complete()) {
      scheduler.plan_tail(*next);
      ++num_tails;
    }
    events.clear();
    scheduler.take_events(&events);
    const auto end = std::chrono::steady_clock::now();
    step_us.push_back(std::chrono::duration<double, std::micro>(planned - begin + (end - waited)).count());
    in_flight = next;
  }
  Measured measured{.best_us = std::numeric_limits<double>::max(),
                    .num_allocations = num_allocations - allocations_before};
  CHECK(in_flight->rows.size() == num_rows);
  CHECK(num_tails == (in_beats ? kWarmUpSteps + kSteps : 0));
  for (auto at = step_us.begin(); at != step_us.end(); at += kWindowSteps) {
    std::vector<double> window(at, at + kWindowSteps);
    std::nth_element(window.begin(), window.begin() + kWindowSteps / 2, window.end());
    measured.best_us = std::min(measured.best_us, window[kWindowSteps / 2]);
  }
  std::sort(step_us.begin(), step_us.end());
  measured.median_us = step_us[kSteps / 2];
  measured.p99_us = step_us[kSteps * 99 / 100];
  return measured;
}

}  // namespace

TEST_CASE("plan and commit keep within the CPU budget and allocate nothing") {
  struct Row {
    uint32_t num_rows;
    double budget_us;
  };
  const Row row = GENERATE(Row{256, 100}, Row{1024, 300});
  const bool caches = GENERATE(false, true), in_beats = GENERATE(false, true);
  const double limit_us = row.budget_us * (std::getenv("LLMRT_EXACT_BUDGETS") ? 1 : kSharedMachine);
  constexpr int kTriesMax = 20;
  Measured measured;
  for (int tries = 0; tries < kTriesMax; ++tries) {
    measured = measure(row.num_rows, caches, in_beats);
    CHECK(measured.num_allocations == 0);
    fmt::print(
        "plan + commit at {} rows{}{}: median {:.1f} us, of the best {} steps {:.1f} us (budget {} us), p99 {:.1f} "
        "us\n",
        row.num_rows, caches ? ", prefix cache" : "", in_beats ? ", in beats" : "", measured.median_us, kWindowSteps,
        measured.best_us, row.budget_us, measured.p99_us);
    if (kInstrumented || measured.best_us <= limit_us) return;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  CHECK(measured.best_us <= limit_us);
}

TEST_CASE("branches that wait share their prompt") {
  constexpr uint32_t kPrompt = 30'000, kBranches = 128;
  SchedulerConfig config;
  config.context_max = 32'768;
  config.kv_pools = {{4096, 16}};
  Scheduler scheduler(config);
  Request request;
  request.id = 1;
  request.n = kBranches;
  request.prompt.assign(kPrompt, 5);
  const uint64_t before = num_bytes;
  scheduler.add(std::move(request), 0);
  REQUIRE(scheduler.plan(0) != nullptr);  // the first one runs
  const uint64_t bytes = num_bytes - before;
  fmt::print("{} branches of {} prompt tokens: {:.1f} MB\n", kBranches, kPrompt, static_cast<double>(bytes) * 1e-6);
  CHECK(bytes < 10 * sizeof(int32_t) * kPrompt);
  for (RequestId id = 1; id <= kBranches; ++id) scheduler.cancel(id, 0);
  CHECK(scheduler.check_books().ok());
}
