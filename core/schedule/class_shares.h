// What each lane may have of what is scarce.
#pragma once

#include <array>

#include "core/request/request_class.h"

namespace llmrt {

// Shares of 1. Only the proportions between the lanes that want something matter.
struct ClassShares {
  // Background takes what is left; its share is that of a request that has waited too long.
  static constexpr double kAgedBackground = 0.05;

  std::array<double, kNumLanes> decode = {0.50, 0.25, 0.25, kAgedBackground};
  std::array<double, kNumLanes> prefill = {0.30, 0.20, 0.50, kAgedBackground};
};

}  // namespace llmrt
