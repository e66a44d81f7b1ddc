// The seeded simulation of the engine: engine_sim [--seeds N] [--first-seed S]. Each seed is run in both loops. A seed
// that fails is printed and replays with --first-seed S --seeds 1.
#include <fmt/format.h>

#include "tests/sim/seeds.h"
#include "tests/sim/simulation.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

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
  fmt::print("  {} drafts, {} of them right; {} draws behind drafts had a mask; {} steps waited for tokens\n",
             coverage.drafts_proposed, coverage.drafts_accepted, coverage.masked_drafts, coverage.steps_awaited);
  fmt::print("  with states {} right drafts, {} wrong ones\n", coverage.states_right, coverage.states_wrong);
  fmt::print("  {} drafts of a draft model, {} of them right; {} of the model's twin, all right\n",
             coverage.model_drafts_proposed, coverage.model_drafts_accepted, coverage.twin_drafts);
  for (int i = 1; i < kNumFinishReasons; ++i) {
    fmt::print("  {:<12}{:>8}\n", finish_reason_name(static_cast<FinishReason>(i)),
               coverage.finished[static_cast<size_t>(i)]);
  }
  fmt::print("  {} prompt tokens were cached; {} hits ended inside a block\n", coverage.cached_tokens,
             coverage.partial_hits);
  fmt::print("  {} runs of hybrids: {} checkpoints kept, {} begun from, {} evicted\n", coverage.num_hybrids,
             coverage.states_kept, coverage.states_begun, coverage.states_evicted);
  fmt::print("  errors: {} not finite, {} without support, {} masks not made, {} pool exhausted; {} devices lost\n",
             coverage.not_finite, coverage.empty_support, coverage.too_complex, coverage.pool_exhausted,
             coverage.device_lost);
}

// With enough seeds everything must have happened.
bool reached_everything(const Coverage& coverage) {
  bool all = coverage.num_refused > 0 && coverage.num_branches > coverage.num_requests &&
             coverage.num_preemptions > coverage.num_swaps && coverage.num_swaps > 0 && coverage.blocks_loaded > 0 &&
             coverage.num_searches > 0 && coverage.num_parked > 0 && coverage.not_finite > 0 &&
             coverage.empty_support > 0 && coverage.too_complex > 0 && coverage.pool_exhausted > 0 &&
             coverage.device_lost > 0 && coverage.cached_tokens > 0 && coverage.partial_hits > 0 &&
             coverage.states_begun > 0 && coverage.states_evicted > 0 && coverage.num_baselines > 0 &&
             coverage.padded_tokens > 0 && coverage.drafts_accepted > 0 &&
             coverage.drafts_proposed > coverage.drafts_accepted && coverage.steps_awaited > 0 &&
             coverage.masked_drafts > 0 && coverage.twin_drafts > 0 && coverage.states_right > 0 &&
             coverage.states_wrong > 0 && coverage.model_drafts_proposed > coverage.model_drafts_accepted;
  for (int i = 1; i < kNumFinishReasons; ++i)  // an engine alone hands nothing over
    all = all &&
          (coverage.finished[static_cast<size_t>(i)] > 0 || static_cast<FinishReason>(i) == FinishReason::kHandedOver);
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  Coverage coverage;
  const Seeds seeds = parse_seeds(argc, argv);
  const bool passed = run_seeds("engine_sim", seeds, [&](uint64_t seed, bool overlap) {
    return simulate(make_scenario(seed), overlap, &coverage);
  });
  if (!passed) return 1;
  print(coverage);
  return seeds.reached(reached_everything(coverage));
}
