// shaders/prepare_rows.comp
#pragma once

#include "backends/vulkan/kernel.h"
#include "core/ops/ops.h"

namespace llmrt::vulkan {

struct PrepareRowsKernel {
  static constexpr const char* kShader = "prepare_rows";
  using Constants = NoConstants;
  struct Push {
    Address inputs, rows, tables;
    Address tokens, positions, row_slots;
    Address kv_slots[kKvGroupsMax];
    uint32_t block_tokens[kKvGroupsMax];               // 0: there is no pool
    uint32_t num_tokens, blocks_row_max, group_words;  // group_words: of the tables of one group
    uint32_t wanted_groups;                            // bit g: kv_slots[g] is there
  };
};
static_assert(sizeof(PrepareRowsKernel::Push) == 112);

}  // namespace llmrt::vulkan
