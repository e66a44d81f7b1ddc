// Histograms with fixed bounds, and the bounds of the figures that are counted with them. Values are counted between
// the bounds of every reader at once, so that each of them gets exact counts at bounds of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/check.h"

namespace llmrt {

// Not thread-safe.
class Histogram {
 public:
  // `bounds` rise.
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value) {
    ++counts_[index_of(value)];
    ++count_;
    sum_ += value;
  }
  // Values of at most `bound`, which is one of the bounds.
  uint64_t count_up_to(double bound) const {
    const size_t i = index_of(bound);
    LLMRT_CHECK(i < bounds_.size() && bounds_[i] == bound, "a histogram knows nothing between its bounds");
    return std::accumulate(counts_.begin(), counts_.begin() + static_cast<std::ptrdiff_t>(i) + 1, uint64_t{0});
  }
  const std::vector<double>& bounds() const { return bounds_; }
  const std::vector<uint64_t>& counts() const { return counts_; }  // per bucket, the last is +inf; not cumulative
  uint64_t count() const { return count_; }
  double sum() const { return sum_; }

 private:
  size_t index_of(double value) const {
    return static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin());
  }

  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  uint64_t count_ = 0;
  double sum_ = 0;
};

// ---- llmrt's own metrics ----

inline std::vector<double> latency_bounds_s() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
}

inline std::vector<double> batch_bounds() {
  return {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
}

inline std::vector<double> length_bounds() {
  std::vector<double> bounds;
  for (double bound = 1; bound <= 1 << 20; bound *= 2) bounds.push_back(bound);
  return bounds;
}

// ---- vLLM's (server/metrics_vllm.h) ----

inline std::vector<double> vllm_first_token_bounds_s() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
          1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
}

inline std::vector<double> vllm_token_bounds_s() {
  return {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
}

inline std::vector<double> vllm_request_bounds_s() {
  return {0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
}

// 1, 2, 5, 10 ... up to the context.
inline std::vector<double> vllm_length_bounds(double context_max) {
  std::vector<double> bounds;
  for (double power = 1;; power *= 10)
    for (const double mantissa : {1.0, 2.0, 5.0}) {
      if (mantissa * power > context_max) return bounds;
      bounds.push_back(mantissa * power);
    }
}

// ---- what is counted: all of them ----

inline std::vector<double> merged_bounds(std::initializer_list<std::vector<double>> lists) {
  std::vector<double> bounds;
  for (const std::vector<double>& list : lists) bounds.insert(bounds.end(), list.begin(), list.end());
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  return bounds;
}

inline constexpr double kCountedContextMax = 1e7;

inline std::vector<double> counted_latencies_s() {
  return merged_bounds(
      {latency_bounds_s(), vllm_first_token_bounds_s(), vllm_token_bounds_s(), vllm_request_bounds_s()});
}
inline std::vector<double> counted_lengths() {
  return merged_bounds({length_bounds(), vllm_length_bounds(kCountedContextMax)});
}

}  // namespace llmrt
