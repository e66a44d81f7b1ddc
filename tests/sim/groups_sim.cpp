// The seeded simulation of a model with several KV groups: groups_sim [--seeds N] [--first-seed S]. Each seed makes
// pools of blocks, of windows and of states, and clients that branch, are cancelled and yield to each other; it is run
// without and with a step planned ahead.
#include <fmt/format.h>

#include "tests/sim/groups_run.h"
#include "tests/sim/seeds.h"

using namespace llmrt;
using namespace llmrt::test;
using groups::Coverage;

namespace {

void print(const Coverage& c) {
  fmt::print("{} runs, {} requests, {} tokens, {} steps, {} preemptions ({} swaps), {} prompt tokens cached\n", c.runs,
             c.requests, c.tokens, c.steps, c.preemptions, c.swaps, c.cached_tokens);
  for (uint32_t g = 0; g < kKvGroupsMax; ++g)
    fmt::print("  group {}: {} stores, {} loads, {} copies\n", g, c.stores[g], c.loads[g], c.copies[g]);
  fmt::print("  {} hits beyond a window, {} with a state\n", c.windows_cached, c.states_cached);
  fmt::print("  states: {} saved ({} compared), {} read, {} evicted\n", c.states_saved, c.states_checked, c.states_read,
             c.states_evicted);
  fmt::print("  {} late rows ({} parked), {} beam searches ({} with states)\n", c.late_rows, c.parked, c.searches,
             c.searches_with_states);
  fmt::print("  {} drafts, {} of them right; with states {} right and {} wrong, and {} checkpoints of their rows\n",
             c.drafts_proposed, c.drafts_accepted, c.states_right, c.states_wrong, c.states_saved_in_runs);
  fmt::print("  {} ended ({} poisoned, {} exhausted), {} were refused\n", c.finished, c.poisoned, c.exhausted,
             c.refused);
}

// With enough seeds everything must have happened.
bool reached_everything(const Coverage& c) {
  bool all = c.cached_tokens > 0 && c.preemptions > c.swaps && c.swaps > 0 && c.windows_cached > 0 &&
             c.states_cached > 0 && c.states_checked > 0 && c.states_read > 0 && c.states_evicted > 0 &&
             c.late_rows > 0 && c.parked > 0 && c.searches_with_states > 0 && c.poisoned > 0 && c.exhausted > 0 &&
             c.refused > 0 && c.drafts_accepted > 0 && c.drafts_proposed > c.drafts_accepted && c.states_right > 0 &&
             c.states_wrong > 0 && c.states_saved_in_runs > 0;
  for (uint32_t g = 0; g < kKvGroupsMax; ++g) all = all && c.stores[g] > 0 && c.loads[g] > 0 && c.copies[g] > 0;
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  Coverage coverage;
  const Seeds seeds = parse_seeds(argc, argv);
  const bool passed = run_seeds("groups_sim", seeds, [&](uint64_t seed, bool overlap) {
    const std::string wrong = groups::simulate(groups::make_scenario(seed), overlap, &coverage);
    return wrong.empty() ? wrong : fmt::format("seed {}{}: {}", seed, overlap ? ", one step ahead" : "", wrong);
  });
  if (!passed) return 1;
  print(coverage);
  return seeds.reached(reached_everything(coverage));
}
