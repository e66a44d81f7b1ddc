// Works that a device computes in rounds.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/base/checked_math.h"

namespace llmrt {

// Turns every other round of works that stand in order, the longest first, but not the last one: a workgroup that has
// one of the last round then has the shortest of the round before, and the longest of the last goes with the shortest.
template <class Iterator>
void turn_rounds(Iterator first, size_t num_works, size_t round) {
  const size_t num_rounds = ceil_div(num_works, round);
  const auto round_begin = [&](size_t r) { return first + static_cast<std::ptrdiff_t>(r * round); };
  for (size_t r = num_rounds % 2; r + 1 < num_rounds; r += 2) std::reverse(round_begin(r), round_begin(r + 1));
}

}  // namespace llmrt
