// The seeded simulation of the engine: engine_sim [--seeds N] [--first-seed S]. Each seed is run in both loops. A seed
// that fails is printed and replays with --first-seed S --seeds 1.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/sim/simulation.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

char running_seed[64];

// A failed LLMRT_CHECK stops the process: say which seed it was.
void on_abort(int) {
  const std::string_view text = running_seed;
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

void print(const Coverage& coverage) {
  fmt::print("{} runs, {} requests ({} refused) of {} branches, {} steps, {} tokens, {} preemptions\n",
             coverage.num_runs, coverage.num_requests, coverage.num_refused, coverage.num_branches, coverage.num_steps,
             coverage.num_tokens, coverage.num_preemptions);
  fmt::print("  {} runs with static or dynamic batching, {} useful tokens there and {} of padding\n",
             coverage.num_baselines, coverage.useful_tokens, coverage.padded_tokens);
  fmt::print("  {} beam searches came to their end; {} draws were parked\n", coverage.num_searches,
             coverage.num_parked);
  fmt::print("  {} preemptions were swaps; {} blocks stored, {} loaded\n", coverage.num_swaps, coverage.blocks_stored,
             coverage.blocks_loaded);
  for (int i = 1; i < kNumFinishReasons; ++i) {
    fmt::print("  {:<12}{:>8}\n", finish_reason_name(static_cast<FinishReason>(i)),
               coverage.finished[static_cast<size_t>(i)]);
  }
  fmt::print("  {} prompt tokens were cached; {} hits ended inside a block\n", coverage.cached_tokens,
             coverage.partial_hits);
  fmt::print("  errors: {} not finite, {} without support, {} pool exhausted; {} devices lost\n", coverage.not_finite,
             coverage.empty_support, coverage.pool_exhausted, coverage.device_lost);
}

// With enough seeds everything must have happened.
bool reached_everything(const Coverage& coverage) {
  bool all = coverage.num_refused > 0 && coverage.num_branches > coverage.num_requests &&
             coverage.num_preemptions > coverage.num_swaps && coverage.num_swaps > 0 && coverage.blocks_loaded > 0 &&
             coverage.num_searches > 0 && coverage.num_parked > 0 && coverage.not_finite > 0 &&
             coverage.empty_support > 0 && coverage.pool_exhausted > 0 && coverage.device_lost > 0 &&
             coverage.cached_tokens > 0 && coverage.partial_hits > 0 && coverage.num_baselines > 0 &&
             coverage.padded_tokens > 0;
  for (int i = 1; i < kNumFinishReasons; ++i) all = all && coverage.finished[static_cast<size_t>(i)] > 0;
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t num_seeds = 100, first_seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--seeds") num_seeds = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--first-seed") first_seed = std::strtoull(argv[i + 1], nullptr, 10);
  }
  std::signal(SIGABRT, on_abort);
  Coverage coverage;
  for (uint64_t seed = first_seed; seed < first_seed + num_seeds; ++seed) {
    std::snprintf(running_seed, sizeof(running_seed), "engine_sim: in seed %llu\n",
                  static_cast<unsigned long long>(seed));
    const Scenario scenario = make_scenario(seed);
    for (const bool overlap : {false, true}) {
      const std::string wrong = simulate(scenario, overlap, &coverage);
      if (wrong.empty()) continue;
      fmt::print(stderr, "FAILED: {}\nreplay: engine_sim --first-seed {} --seeds 1\n", wrong, seed);
      return 1;
    }
  }
  print(coverage);
  if (num_seeds >= 100 && !reached_everything(coverage)) {
    fmt::print(stderr, "FAILED: {} seeds did not reach everything\n", num_seeds);
    return 1;
  }
  return 0;
}
