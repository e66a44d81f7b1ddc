// Runs a scenario through the real engine on the fake backend and checks it from the clients' side: every branch of a
// request ends exactly once and for a reason that it gave; what it got is what it gets alone; nothing shown is taken
// back; nothing is left behind. The engine checks its books after every step.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/metrics/engine_stats.h"
#include "tests/sim/scenario.h"

namespace llmrt::test {

// What the runs have reached: a simulation that never preempts proves little.
struct Coverage {
  uint64_t num_runs = 0, num_requests = 0, num_branches = 0, num_refused = 0, num_steps = 0, num_tokens = 0,
           num_preemptions = 0, num_swaps = 0;
  uint64_t num_parked = 0;  // draws put off by a late mask
  uint64_t drafts_proposed = 0, drafts_accepted = 0, steps_awaited = 0;
  uint64_t model_drafts_proposed = 0, model_drafts_accepted = 0;  // of these, the draft model's
  uint64_t twin_drafts = 0;                                       // of a draft model that is the model's twin
  uint64_t states_right = 0, states_wrong = 0;                    // drafts of models with states
  uint64_t masked_drafts = 0;                                     // draws behind drafts, under a mask
  uint64_t blocks_stored = 0, blocks_loaded = 0;
  uint64_t cached_tokens = 0, partial_hits = 0;                      // of prompts; hits that end inside a block
  uint64_t num_searches = 0;                                         // beam searches that came to their end
  uint64_t num_baselines = 0, useful_tokens = 0, padded_tokens = 0;  // runs with static or dynamic batching
  uint64_t num_hybrids = 0, states_kept = 0, states_begun = 0, states_evicted = 0;
  uint64_t pool_exhausted = 0, not_finite = 0, empty_support = 0, too_complex = 0, overloaded = 0, device_lost = 0;
  std::array<uint64_t, kNumFinishReasons> finished = {};
};

// Empty when all is well, else what went wrong, at which tick.
std::string simulate(const Scenario& scenario, bool overlap, Coverage* coverage);

}  // namespace llmrt::test
