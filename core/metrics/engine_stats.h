// Counters and gauges of one engine, as /metrics and tools read them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace llmrt {

// Cumulative histogram with fixed bounds (Prometheus style). Not thread-safe.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value) {
    size_t i = 0;
    while (i < bounds_.size() && value > bounds_[i]) ++i;
    ++counts_[i];
    ++count_;
    sum_ += value;
  }
  const std::vector<double>& bounds() const { return bounds_; }
  const std::vector<uint64_t>& counts() const { return counts_; }  // per bucket, the last is +inf; not cumulative
  uint64_t count() const { return count_; }
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  uint64_t count_ = 0;
  double sum_ = 0;
};

inline std::vector<double> latency_bounds_s() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
}

inline constexpr int kNumFinishReasons = 9;  // FinishReason of core/request/request.h

struct EngineStats {
  uint32_t num_running = 0, num_waiting = 0, num_streaming = 0;
  uint64_t queue_tokens = 0;
  uint32_t blocks_total = 0, blocks_free = 0, blocks_cached = 0;  // cached ones are among the free
  uint64_t prompt_tokens = 0, generated_tokens = 0;
  uint64_t prefix_queries = 0, prefix_hits = 0;  // in prompt tokens, at the first admission
  uint64_t prefix_host_hits = 0;                 // of the hits, from the host tier
  uint32_t host_blocks_total = 0, host_blocks_used = 0;
  uint64_t blocks_stored = 0, blocks_loaded = 0;  // moved to the host tier, and back
  uint64_t num_steps = 0, num_preemptions = 0, num_rejected = 0;
  uint64_t num_outgrown = 0;          // of the preemptions, those for a request that had passed its reservation
  uint64_t over_reserved_tokens = 0;  // reserved at admission and not used, of requests that ended
  uint64_t num_reclaims = 0;          // those that gave lent room back to a higher class
  uint64_t num_swaps = 0;             // of the preemptions, those whose keys and values go to the host tier
  std::array<uint64_t, kNumFinishReasons> finished = {};  // by FinishReason
  Histogram ttft_s{latency_bounds_s()}, itl_s{latency_bounds_s()}, e2e_s{latency_bounds_s()};
  double plan_ms = 0, device_ms = 0, wall_ms = 0;  // sums over steps; idle = 1 - device / wall
};

}  // namespace llmrt
