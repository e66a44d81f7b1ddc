// How many requests are in the system, summed over time exactly: the L of Little's law, L = lambda * W. Each arrival
// and each departure is told once, with a time that does not go back.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "core/base/clock.h"

namespace llmrt {

class InSystem {
 public:
  void arrive(TimeNs now) {
    advance(now);
    ++num_;
    ++arrivals_;
  }
  void depart(TimeNs arrival, TimeNs now) {
    advance(now);
    --num_;
    ++departures_;
    sojourn_s_ += static_cast<double>(now - arrival) * 1e-9;
  }

  uint32_t num() const { return num_; }
  uint64_t arrivals() const { return arrivals_; }
  uint64_t departures() const { return departures_; }
  double sojourn_s() const { return sojourn_s_; }  // of those that departed, together
  // Requests times seconds up to `now`, which is not before the last change.
  double area_s(TimeNs now) const { return area_s_ + num_ * static_cast<double>(now - changed_ns_) * 1e-9; }

 private:
  void advance(TimeNs now) {
    area_s_ = area_s(now);
    changed_ns_ = now;
  }

  uint32_t num_ = 0;
  uint64_t arrivals_ = 0, departures_ = 0;
  double area_s_ = 0, sojourn_s_ = 0;
  TimeNs changed_ns_ = 0;
};

// Little's law over a window.
struct LittlesLaw {
  double in_system = 0;         // L, a mean over time
  double arrivals_per_s = 0;    // lambda
  double time_in_system_s = 0;  // W, of those that departed in the window
  // |L - lambda W| / L: near 0 while the window is stable. Nothing when nobody was there or nobody departed.
  std::optional<double> residual() const {
    if (in_system <= 0 || time_in_system_s <= 0) return std::nullopt;
    return std::abs(in_system - arrivals_per_s * time_in_system_s) / in_system;
  }
};

}  // namespace llmrt
