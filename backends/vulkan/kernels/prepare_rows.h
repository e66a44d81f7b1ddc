// shaders/prepare_rows.comp
#pragma once

#include "backends/vulkan/kernel.h"

namespace llmrt::vulkan {

struct PrepareRowsKernel {
  static constexpr const char* kShader = "prepare_rows";
  using Constants = NoConstants;
  struct Push {
    Address inputs, rows, tables;
    Address tokens, positions, row_slots, kv_slots;
    uint32_t num_tokens, blocks_row_max, block_tokens;  // block_tokens 0: there is no pool
  };
};
static_assert(sizeof(PrepareRowsKernel::Push) == 68);

}  // namespace llmrt::vulkan
