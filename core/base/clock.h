// Time as a parameter: the core never asks the system for it. Production passes SteadyClock, tests a SimClock.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <thread>

namespace llmrt {

using TimeNs = int64_t;  // monotonic nanoseconds; the origin has no meaning
inline constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimeNs now_ns() const = 0;
  virtual void sleep_until(TimeNs then) const = 0;
};

class SteadyClock final : public Clock {
 public:
  TimeNs now_ns() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  void sleep_until(TimeNs then) const override {
    std::this_thread::sleep_until(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(then)));
  }
};

inline double ms_between(TimeNs begin, TimeNs end) {
  return static_cast<double>(end - begin) * 1e-6;
}

}  // namespace llmrt
