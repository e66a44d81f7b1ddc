// How fast prompts are served while some of them wait: tokens a millisecond over about the last hundred steps, those
// that a cache spares included. What is measured holds whatever bounds it, computing or room.
#pragma once

#include <cstdint>

#include "core/base/clock.h"

namespace llmrt {

class ServiceRate {
 public:
  // Once a step. `num_tokens` of prompts were served since the last call; `some_wait` now.
  void observe(uint64_t num_tokens, bool some_wait, TimeNs now) {
    if (some_waited_) {
      tokens_ = kFade * tokens_ + static_cast<double>(num_tokens);
      ms_ = kFade * ms_ + static_cast<double>(now - last_ns_) * 1e-6;
      if (num_steps_ < kStepsMin) ++num_steps_;
    }
    some_waited_ = some_wait;
    last_ns_ = now;
  }
  // Nobody waits until the next call of `observe`: the time until then is no time of serving.
  void rest() { some_waited_ = false; }
  // 0 = not known yet.
  double tokens_per_ms() const { return num_steps_ < kStepsMin || ms_ <= 0 ? 0 : tokens_ / ms_; }

 private:
  static constexpr double kFade = 0.99;
  static constexpr uint32_t kStepsMin = 32;
  double tokens_ = 0, ms_ = 0;
  uint32_t num_steps_ = 0;
  bool some_waited_ = false;
  TimeNs last_ns_ = 0;
};

}  // namespace llmrt
