// shaders/write_halves.comp
#pragma once

#include "backends/vulkan/choose_matmul.h"
#include "backends/vulkan/kernel.h"
#include "backends/vulkan/program.h"

namespace llmrt::vulkan {

struct WriteHalvesKernel {
  static constexpr const char* kShader = "write_halves";
  struct Constants {
    uint32_t layout;
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"layout", &Constants::layout},
  };
  struct Push {
    Address weight, result;
    uint32_t columns, row_words;
    uint32_t first, num_first, second;  // row r is the weight's row first + r, from num_first on second + r - num_first
  };
};
static_assert(sizeof(WriteHalvesKernel::Push) == 36);

// Writes a slice of a piece as f16, woven, to `to`.
Launch write_halves(const Piece& piece, uint32_t columns, const HalvesSlice& slice, const View& to);

}  // namespace llmrt::vulkan
