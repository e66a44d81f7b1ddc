// shaders/paged_attention_matrix.comp
#pragma once

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/kernels/paged.h"

namespace llmrt::vulkan {

struct PagedAttentionMatrixKernel {
  static constexpr const char* kShader = "paged_attention_matrix";
  struct Constants {
    uint32_t head_dim;
    uint32_t kv_dtype;  // kv_constant
    uint32_t out_dtype;
    uint32_t soft_cap;
    uint32_t sinks;
    uint32_t subgroups;
    uint32_t m;  // the device's shape: rows of q
    uint32_t n;  // keys, or dimensions of a value
    uint32_t k;  // dimensions of a key, or keys
    uint32_t row_frags;
    uint32_t tile_keys;    // at least 8 for each lane of a row
    uint32_t group_heads;  // query heads of a KV head
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"head_dim", &Constants::head_dim},
      {"kv_dtype", &Constants::kv_dtype},
      {"out_dtype", &Constants::out_dtype},
      {"soft_cap", &Constants::soft_cap},
      {"sinks", &Constants::sinks},
      {"subgroups", &Constants::subgroups},
      {"m", &Constants::m},
      {"n", &Constants::n},
      {"k", &Constants::k},
      {"row_frags", &Constants::row_frags},
      {"tile_keys", &Constants::tile_keys},
      {"group_heads", &Constants::group_heads},
  };
  using Push = PagedPush;
};

}  // namespace llmrt::vulkan
