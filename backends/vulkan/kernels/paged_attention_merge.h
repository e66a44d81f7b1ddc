// shaders/paged_attention_merge.comp
#pragma once

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/kernels/paged.h"

namespace llmrt::vulkan {

struct PagedAttentionMergeKernel {
  static constexpr const char* kShader = "paged_attention_merge";
  struct Constants {
    uint32_t head_dim;
    uint32_t kv_dtype;  // kv_constant
    uint32_t out_dtype;
    uint32_t soft_cap;
    uint32_t sinks;
    uint32_t prompt_only;
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"head_dim", &Constants::head_dim}, {"kv_dtype", &Constants::kv_dtype}, {"out_dtype", &Constants::out_dtype},
      {"soft_cap", &Constants::soft_cap}, {"sinks", &Constants::sinks},       {"prompt_only", &Constants::prompt_only},
  };
  using Push = PagedPush;
};

}  // namespace llmrt::vulkan
