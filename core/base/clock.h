// Time as a parameter: the core never asks the system for it. Production passes SteadyClock, tests a SimClock.
#pragma once

#include <chrono>
#include <cstdint>

namespace llmrt {

using TimeNs = int64_t;  // monotonic nanoseconds; the origin has no meaning

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimeNs now_ns() const = 0;
};

class SteadyClock final : public Clock {
 public:
  TimeNs now_ns() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

inline double ms_between(TimeNs begin, TimeNs end) {
  return static_cast<double>(end - begin) * 1e-6;
}

}  // namespace llmrt
