// Quantiles of times in fixed memory (2.6 KB): a count for each sixteenth of each doubling, from 1 us to 13 days. A
// quantile is the middle of its bucket, so within 1/32 of the sample of that rank; the largest sample is exact, and
// stands for all beyond the range.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>

#include "core/base/clock.h"

namespace llmrt {

class LatencySketch {
 public:
  // Below 0 counts as 0.
  void add(TimeNs time_ns) {
    time_ns = std::max<TimeNs>(time_ns, 0);
    ++counts_[bucket_of(time_ns)];
    min_ns_ = count_ == 0 ? time_ns : std::min(min_ns_, time_ns);
    max_ns_ = std::max(max_ns_, time_ns);
    ++count_;
  }
  uint64_t count() const { return count_; }
  // Nearest rank: of 100 samples 0.95 is the 95th from below. Nothing without samples.
  std::optional<double> quantile_ms(double quantile) const {
    if (count_ == 0) return std::nullopt;
    const auto rank =
        std::clamp<uint64_t>(static_cast<uint64_t>(std::ceil(quantile * static_cast<double>(count_))), 1, count_);
    size_t bucket = 0;
    for (uint64_t below = counts_[0]; below < rank; below += counts_[bucket]) ++bucket;
    if (rank == count_ || bucket == kNumBuckets - 1) return static_cast<double>(max_ns_) * 1e-6;
    return std::clamp(middle_ns(bucket), static_cast<double>(min_ns_), static_cast<double>(max_ns_)) * 1e-6;
  }

 private:
  static constexpr int kParts = 16, kDoublings = 40;
  static constexpr int kUnitBits = 10;  // the smallest time that is told from 0: 2^10 ns
  static constexpr size_t kNumBuckets = 1 + kParts * kDoublings + 1;

  // Bucket 0 is below one unit; unit * 2^d * (1 + p/16) begins bucket 1 + 16 d + p; the last is beyond the range.
  static size_t bucket_of(TimeNs time_ns) {
    const uint64_t parts = static_cast<uint64_t>(time_ns) >> (kUnitBits - 4);
    if (parts < kParts) return 0;
    const int doubling = static_cast<int>(std::bit_width(parts)) - 5;
    if (doubling >= kDoublings) return kNumBuckets - 1;
    return 1 + static_cast<size_t>(kParts * doubling) + ((parts >> doubling) & (kParts - 1));
  }
  static double middle_ns(size_t bucket) {
    if (bucket == 0) return 0.5 * (1 << kUnitBits);
    const int doubling = static_cast<int>(bucket - 1) / kParts;
    const int part = static_cast<int>(bucket - 1) % kParts;
    return std::ldexp(1 + (part + 0.5) / kParts, doubling + kUnitBits);
  }

  std::array<uint32_t, kNumBuckets> counts_ = {};
  uint64_t count_ = 0;
  TimeNs min_ns_ = 0, max_ns_ = 0;
};

}  // namespace llmrt
