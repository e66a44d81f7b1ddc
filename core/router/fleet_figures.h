// What a fleet has done with a worker, for reports. Plain data.
#pragma once

#include <cstdint>
#include <string>

namespace llmrt {

struct FleetWorkerFigures {
  std::string name;
  uint64_t num_placed = 0;     // branches, those that came from elsewhere among them
  uint64_t num_moved_in = 0;   // of these: from an engine that was lost
  uint64_t num_handed_in = 0;  // whose prompt another engine has computed
  uint64_t num_failed = 0;     // requests that ended with an error of the engine
  uint64_t num_losses = 0;     // engines that were lost
  bool is_lost = false, is_drained = false;
  bool is_out = false;  // left out as its requests failed, or on trial
};

}  // namespace llmrt
