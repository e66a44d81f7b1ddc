// Relative differences of what a device and the reference computed, by norms.
#pragma once

#include <cstddef>
#include <span>

#include "core/backend/backend.h"

namespace llmrt::bench {

// Norms of a difference and of what was expected. A number that is not finite on one side alone is infinitely far off.
struct Difference {
  double difference = 0, norm = 0;

  void add(double expected, double found);
  void add_wrong();
  double relative() const;
};

// FilterResults, a row each. The cutoff may be any number that keeps as many.
Difference filter_difference(std::span<const std::byte> expected, std::span<const std::byte> found);
// Another token is wrong unless the draw was so near that f32 may decide either way.
Difference draw_difference(std::span<const SampleResult> expected, std::span<const SampleResult> found);
Difference logprobs_difference(const StepOutput& expected, const StepOutput& found);

}  // namespace llmrt::bench
