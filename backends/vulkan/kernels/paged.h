// The push constants that the attention kernels share: shaders/paged.glsl.
#pragma once

#include "backends/vulkan/kernel.h"

namespace llmrt::vulkan {

struct PagedPush {
  Address qkv, result, inputs, tables, data, scales, partials;
  Address arrivals;  // [merge item][num_heads] splits of decode items that are done; 0 before and after
  Address sinks;     // [num_heads], where kernels are built with `sinks`
  uint32_t num_heads, num_kv_heads, block_tokens, blocks_row_max;
  uint32_t count_words[2], items_words[2];  // header words of two lists of items, walked one after the other
  float scale;                              // of products of q and keys, times that of an fp8-tensor pool's keys
  uint32_t window;                          // 0: none
  float soft_cap;
  float v_scale;       // of an fp8-tensor pool's values, else 1
  uint32_t row_heads;  // of a row of qkv: q, and k and v where they are there
  uint32_t out_shape;  // of a row of result: heads << 16 | numbers of each
};
constexpr uint32_t out_shape_of(uint32_t heads, uint32_t dim) {
  return heads << 16 | dim;
}
static_assert(sizeof(PagedPush) == 128 && offsetof(PagedPush, num_heads) == 72 &&
              offsetof(PagedPush, count_words) == 88 && offsetof(PagedPush, scale) == 104);

}  // namespace llmrt::vulkan
