// The sizes in which steps are computed: 1 to 8 tokens each, in steps of 8 to 64, of 16 to 256, of 64 to 384, of 128
// beyond, where a matrix product of a size between takes as long as the next one, or longer.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/base/checked_math.h"

namespace llmrt {

// Between sizes around `count`.
constexpr uint32_t step_grain(uint32_t count) {
  return count <= 8 ? 1 : count <= 64 ? 8 : count <= 256 ? 16 : count <= 384 ? 64 : 128;
}
// The size that so many tokens (or sampled rows) run in.
constexpr uint32_t step_size_from(uint32_t count) {
  return round_up(std::max(count, 1u), step_grain(count));
}
// The largest size of at most so many.
constexpr uint32_t step_size_within(uint32_t count) {
  return std::max(count / step_grain(count) * step_grain(count), 1u);
}

}  // namespace llmrt
