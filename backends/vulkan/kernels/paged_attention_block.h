// shaders/paged_attention_block.comp
#pragma once

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/kernels/paged.h"

namespace llmrt::vulkan {

struct PagedAttentionBlockKernel {
  static constexpr const char* kShader = "paged_attention_block";
  static constexpr const char* kPairsShader = "paged_attention_block.pairs";  // in packed f16
  struct Constants {
    uint32_t head_dim;
    uint32_t kv_dtype;  // kv_constant
    uint32_t out_dtype;
    uint32_t soft_cap;
    uint32_t sinks;
    uint32_t key_lanes;  // a power of two, at most a subgroup
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"head_dim", &Constants::head_dim}, {"kv_dtype", &Constants::kv_dtype}, {"out_dtype", &Constants::out_dtype},
      {"soft_cap", &Constants::soft_cap}, {"sinks", &Constants::sinks},       {"key_lanes", &Constants::key_lanes},
  };
  using Push = PagedPush;
};

}  // namespace llmrt::vulkan
