// In which order lanes are served from something scarce: start-time fair queuing (Goyal, Vin, Cheng 1996). A lane's
// virtual time grows by what it was served over its share, and the lane with the least goes next; so while several want
// more than there is, each gets its share, and a share that nobody uses is the others'. A lane that comes back begins
// where the others are: it is owed nothing for the time in which it wanted nothing, but for a credit, with which it is
// served at once what it needs in a burst.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>

#include "core/schedule/class_shares.h"

namespace llmrt {

class FairQueue {
 public:
  using Amounts = std::array<double, kNumLanes>;

  // Shares are positive. Credits in the unit of what is charged.
  FairQueue(const Amounts& shares, const Amounts& credits) : shares_(shares), credits_(credits) {}

  // Which lanes want something now.
  void set_active(const std::array<bool, kNumLanes>& active) {
    now_ = std::max(now_, least_active());
    for (size_t i = 0; i < kNumLanes; ++i)
      if (active[i] && !active_[i]) times_[i] = std::max(times_[i], now_ - credits_[i] / shares_[i]);
    active_ = active;
  }
  // What a lane gets while it is not active costs it nothing.
  void charge(Lane lane, double amount) {
    const size_t i = static_cast<size_t>(lane);
    if (active_[i]) times_[i] += amount / shares_[i];
  }
  // Active lanes by their virtual time, then the others; between equals the higher lane first.
  std::array<Lane, kNumLanes> order() const {
    std::array<Lane, kNumLanes> lanes = kLanes;
    const auto key = [this](Lane lane) {
      const size_t i = static_cast<size_t>(lane);
      return std::tuple(!active_[i], active_[i] ? times_[i] : 0, lane);
    };
    std::ranges::sort(lanes, {}, key);
    return lanes;
  }

 private:
  double least_active() const {
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < kNumLanes; ++i)
      if (active_[i]) least = std::min(least, times_[i]);
    return std::isfinite(least) ? least : now_;
  }

  Amounts shares_, credits_, times_ = {};
  std::array<bool, kNumLanes> active_ = {};
  double now_ = 0;  // virtual time of those that are served; never goes back
};

}  // namespace llmrt
