// Runs a scenario through real engines behind a fleet, in simulated time: each worker's steps end when its device has
// done them. Checks clients (fleet_client.h), the books of all engines, and each placement.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/fleet_scenario.h"

namespace llmrt::test::fleet {

struct FleetResult {
  std::string wrong;                       // empty: nothing
  uint64_t num_counted = 0, num_good = 0;  // requests that count; those that were answered within the targets
  uint64_t num_tokens = 0;                 // told
  double seconds = 0, ttft_p99_ms = 0;
  std::array<uint64_t, kNumKinds> counted_of = {}, good_of = {};
  std::array<double, kNumKinds> ttft_most_ms = {};
  // What has been reached.
  uint64_t num_moved = 0, num_lost = 0, num_cancelled = 0, num_refused = 0, num_errors = 0, num_failed = 0;
  uint64_t num_preemptions = 0, num_back = 0;
  std::vector<uint64_t> placed;  // branches, by worker

  double goodput() const {
    return num_counted == 0 ? 1 : static_cast<double>(num_good) / static_cast<double>(num_counted);
  }
  double tokens_s() const { return seconds > 0 ? static_cast<double>(num_tokens) / seconds : 0; }
};

FleetResult run_fleet(const FleetScenario& scenario, PlacementPolicy policy);

}  // namespace llmrt::test::fleet
