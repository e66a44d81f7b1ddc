// shaders/latent_rows.comp, head_matmul.comp, latent_attention.comp, expand_latent.comp
#pragma once

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/kernels/paged.h"

namespace llmrt::vulkan {

struct LatentRowsKernel {
  static constexpr const char* kShader = "latent_rows";
  struct Constants {
    uint32_t rope;   // rope_constant
    uint32_t write;  // kv_constant
  };
  static constexpr Constant<Constants> kConstants[] = {{"rope", &Constants::rope}, {"write", &Constants::write}};
  struct Push {
    Address q, kv, query, positions, kv_slots, norm, freqs, data, scales, count;
    uint32_t num_heads, nope, rank, rope_dim;
    float eps, magnitude;
    float k_scale;  // of an fp8-tensor pool
    uint32_t turns_q;
  };
};
static_assert(sizeof(LatentRowsKernel::Push) == 112 && offsetof(LatentRowsKernel::Push, num_heads) == 80);

struct HeadMatmulKernel {
  static constexpr const char* kShader = "head_matmul";
  struct Constants {
    uint32_t layout;  // layout_constant
    uint32_t cols;    // tokens of an invocation
    uint32_t x_dtype, out_dtype;
  };
  static constexpr Constant<Constants> kConstants[] = {{"layout", &Constants::layout},
                                                       {"cols", &Constants::cols},
                                                       {"x_dtype", &Constants::x_dtype},
                                                       {"out_dtype", &Constants::out_dtype}};
  struct Push {
    Address x, weight, result, count;
    uint32_t columns, row_words, num_rows;  // num_rows: of a head
    uint32_t num_heads, x_stride, out_stride;
  };
};
static_assert(sizeof(HeadMatmulKernel::Push) == 56);

struct ExpandLatentKernel {
  static constexpr const char* kShader = "expand_latent";
  struct Constants {
    uint32_t layout;  // layout_constant
    uint32_t keys;    // of a group
    uint32_t kv_dtype;
    uint32_t columns;
  };
  static constexpr Constant<Constants> kConstants[] = {{"layout", &Constants::layout},
                                                       {"keys", &Constants::keys},
                                                       {"kv_dtype", &Constants::kv_dtype},
                                                       {"columns", &Constants::columns}};
  struct Push {
    Address data, scales, inputs, tables, weight, result;
    uint32_t row_words, num_rows, head_first, num_heads;
    uint32_t head_dim, which, copied, row_dim, block_tokens, blocks_row_max;
    float k_scale;  // of an fp8-tensor pool
  };
};
static_assert(sizeof(ExpandLatentKernel::Push) == 92 && offsetof(ExpandLatentKernel::Push, k_scale) == 88);

// head_dim: the numbers that are values, row_dim: all of a row of the cache.
struct LatentAttentionKernel {
  static constexpr const char* kShader = "latent_attention";
  struct Constants {
    uint32_t head_dim;
    uint32_t kv_dtype;  // kv_constant
    uint32_t out_dtype;
    uint32_t soft_cap, sinks;  // 0
    uint32_t row_dim;
    uint32_t slices, teams;  // invocations that share a query row, and how many such
    uint32_t rows_each;      // query rows of an invocation
    uint32_t tile_keys;
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"head_dim", &Constants::head_dim},   {"kv_dtype", &Constants::kv_dtype}, {"out_dtype", &Constants::out_dtype},
      {"soft_cap", &Constants::soft_cap},   {"sinks", &Constants::sinks},       {"row_dim", &Constants::row_dim},
      {"slices", &Constants::slices},       {"teams", &Constants::teams},       {"rows_each", &Constants::rows_each},
      {"tile_keys", &Constants::tile_keys},
  };
  using Push = PagedPush;
};

}  // namespace llmrt::vulkan
