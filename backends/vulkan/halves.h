// Rows of quantised weights in f16, woven: what matmul_wide multiplies fastest (shaders/write_halves.comp;
// ops/matmul.cpp).
#pragma once

#include "backends/vulkan/recorder.h"

namespace llmrt::vulkan {

struct HalvesWrite {
  Kernel kernel;
  Push push;
  Groups groups;
};

// Rows [first, first + num_first) of a piece, and behind them num_second rows from the middle of it plus `first` on (of
// an up behind its gate). Both are multiples of 8.
HalvesWrite halves_write(const Piece& piece, uint32_t columns, uint64_t first, uint64_t num_first, uint64_t num_second,
                         const View& to);
// Whether the piece is multiplied in f16, of enough rows of x: from that number on it then takes less time, with the
// piece's copy, or written out in every step.
bool can_write_halves(const Traits& traits, const Piece& piece, uint64_t columns);
uint32_t halves_rows_min(const Piece& piece);
// From so many rows of x on copies in f16 are faster than weights of any encoding.
inline constexpr uint32_t kF16CopiesRowsMin = 320;

}  // namespace llmrt::vulkan
