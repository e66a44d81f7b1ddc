// Time by hand.
#pragma once

#include <algorithm>

#include "core/base/clock.h"

namespace llmrt::test {

inline constexpr TimeNs kMs = 1'000'000;

class SimClock final : public Clock {
 public:
  TimeNs now_ns() const override { return now_ns_; }
  void sleep_until(TimeNs then) const override { now_ns_ = std::max(now_ns_, then); }
  void advance_ns(TimeNs by) { now_ns_ += by; }

 private:
  mutable TimeNs now_ns_ = 1;
};

}  // namespace llmrt::test
