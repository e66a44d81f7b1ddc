// Runs a scenario through scheduler, lowering and the fake device, without an engine. What each client gets must be
// what it gets alone: a wrong slot, a stale state or a freed block changes the tokens. Each checkpoint that a step
// writes must be the state of exactly the tokens before it. Books are checked after every step.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tests/sim/groups_scenario.h"

namespace llmrt::test::groups {

// What the runs have reached: a simulation that never preempts proves little.
struct Coverage {
  uint64_t runs = 0, requests = 0, tokens = 0, steps = 0, cached_tokens = 0, preemptions = 0, swaps = 0;
  std::array<uint64_t, kKvGroupsMax> stores = {}, loads = {}, copies = {};
  uint64_t windows_cached = 0, states_cached = 0;  // hits beyond a window, and hits that began with a state
  uint64_t states_saved = 0, states_read = 0;      // checkpoints that steps wrote, and that they began from
  uint64_t states_checked = 0;                     // of the saved, those that were compared with the text's own state
  uint64_t states_evicted = 0;
  uint64_t late_rows = 0, parked = 0, searches = 0;
  uint64_t searches_with_states = 0;
  uint64_t drafts_proposed = 0, drafts_accepted = 0;
  uint64_t states_right = 0, states_wrong = 0;  // drafts of models with states
  uint64_t states_saved_in_runs = 0;            // checkpoints that rows with drafts wrote
  uint64_t refused = 0, exhausted = 0, poisoned = 0, finished = 0;
};

// What went wrong; empty: nothing. `overlap`: plan one step ahead.
std::string simulate(const Scenario& scenario, bool overlap, Coverage* coverage);

}  // namespace llmrt::test::groups
