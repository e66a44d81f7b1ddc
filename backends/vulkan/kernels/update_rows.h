// shaders/update_rows.comp
#pragma once

#include "backends/vulkan/kernel.h"

namespace llmrt::vulkan {

struct UpdateRowsKernel {
  static constexpr const char* kShader = "update_rows";
  using Constants = NoConstants;
  struct Push {
    Address inputs, rows, tables, counts;
    uint32_t blocks_row_max, vocab_size;
    uint32_t num_kv_groups, group_words;  // group_words: of the tables of one group
  };
};
static_assert(sizeof(UpdateRowsKernel::Push) == 48);

}  // namespace llmrt::vulkan
