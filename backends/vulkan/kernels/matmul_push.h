// The push constants of the matmul kernels. All begin with the same five addresses, and name a piece of a weight group
// and its place in a row of the result.
#pragma once

#include "backends/vulkan/kernel.h"

namespace llmrt::vulkan {

// matmul_vector, matmul_lanes
struct MatmulPush {
  Address x, weight, bias, result, count;
  uint32_t columns, row_words, num_rows;
  uint32_t result_first, result_columns;
};
static_assert(sizeof(MatmulPush) == 60);

// matmul_matrix, matmul_tile, matmul_pairs, matmul_dots: workgroups may share the columns of a tile.
struct MatmulSplitPush {
  Address x, weight, bias, result, count;
  Address products;  // sums that they hand to each other
  Address arrivals;  // how many have done so, by tile
  uint32_t columns, row_words, num_rows;
  uint32_t result_first, result_columns;
};
static_assert(sizeof(MatmulSplitPush) == 76 && offsetof(MatmulSplitPush, products) == 40 &&
              offsetof(MatmulSplitPush, columns) == 56);

// matmul_batch, matmul_wide: workgroups share runs of steps of all tiles.
struct MatmulRunsPush {
  Address x, weight, bias, result, count;
  Address products, arrivals;
  uint32_t columns, row_words, num_rows;
  uint32_t result_first, result_columns, x_rows;
};
static_assert(sizeof(MatmulRunsPush) == 80 && offsetof(MatmulRunsPush, products) == 40 &&
              offsetof(MatmulRunsPush, columns) == 56);

// matmul_fragment, matmul_row: shaders/matmul_ends.glsl. Words that a variant does not read are 0.
struct MatmulEndsPush {
  Address x, weight, bias, result, count;
  uint32_t columns, row_words, num_rows;
  uint32_t result_first, result_columns, norm_slot;
  Address positions;
  Address kv_slots;  // the residual, where the kernel leaves a norm
  Address freqs;     // the norm's weight, likewise
  Address data;      // what the next matmul reads, likewise
  uint32_t num_heads = 0, num_kv_heads = 0, head_dim = 0, block_tokens = 0;
  float magnitude = 0;
  uint32_t unused = 0;
  Address norms;  // resources.h NormParts
};
static_assert(sizeof(MatmulEndsPush) == 128 && offsetof(MatmulEndsPush, columns) == 40 &&
              offsetof(MatmulEndsPush, positions) == 64 && offsetof(MatmulEndsPush, magnitude) == 112 &&
              offsetof(MatmulEndsPush, norms) == 120);

}  // namespace llmrt::vulkan
