// How many tokens of prompts are computed a millisecond, over about the last four seconds. While a scheduler keeps up
// with the prompts that come this is the rate at which they come.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/base/clock.h"

namespace llmrt {

class PromptDemand {
 public:
  // `now` never falls.
  void add(uint64_t tokens, TimeNs now) {
    tokens_ = faded(now) + static_cast<double>(tokens);
    last_ns_ = now;
  }
  double tokens_per_ms(TimeNs now) const { return faded(now) / kWindowMs; }

 private:
  static constexpr double kWindowMs = 4000;

  double faded(TimeNs now) const { return tokens_ * std::exp(-static_cast<double>(now - last_ns_) * 1e-6 / kWindowMs); }

  double tokens_ = 0;
  TimeNs last_ns_ = 0;
};

}  // namespace llmrt
