// Medians and spread of samples.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace llmrt::bench {

inline double mean(const std::vector<double>& samples) {
  double sum = 0;
  for (const double sample : samples) sum += sample;
  return samples.empty() ? 0 : sum / static_cast<double>(samples.size());
}

// Between the two middle ones of an even number.
inline double median(std::vector<double> samples) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const size_t middle = samples.size() / 2;
  return samples.size() % 2 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
}

// Where the median lies with 95 % confidence, by the ranks of the samples; all that they span where they are few.
inline std::pair<double, double> median_range(std::vector<double> samples) {
  if (samples.empty()) return {0, 0};
  std::sort(samples.begin(), samples.end());
  const auto n = static_cast<double>(samples.size());
  const auto rank = static_cast<size_t>(std::max(0.0, std::floor((n - 1.96 * std::sqrt(n)) / 2) - 1));
  return {samples[rank], samples[samples.size() - 1 - rank]};
}

// The sample's: n - 1.
inline double stddev(const std::vector<double>& samples) {
  if (samples.size() < 2) return 0;
  const double centre = mean(samples);
  double sum = 0;
  for (const double sample : samples) sum += (sample - centre) * (sample - centre);
  return std::sqrt(sum / static_cast<double>(samples.size() - 1));
}

}  // namespace llmrt::bench
