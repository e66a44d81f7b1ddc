// shaders/joined_qk_norm.comp
#pragma once

#include "backends/vulkan/kernel.h"

namespace llmrt::vulkan {

struct JoinedQkNormKernel {
  static constexpr const char* kShader = "joined_qk_norm";
  struct Constants {};
  struct Push {
    Address qkv, q_weight, k_weight, count;
    uint32_t q_columns, k_columns, columns;
    float eps;
  };
};
static_assert(sizeof(JoinedQkNormKernel::Push) == 48);

}  // namespace llmrt::vulkan
