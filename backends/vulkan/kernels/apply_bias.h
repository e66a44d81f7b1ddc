// shaders/apply_bias.comp
#pragma once

#include "backends/vulkan/kernel.h"

namespace llmrt::vulkan {

struct ApplyBiasKernel {
  static constexpr const char* kShader = "apply_bias";
  using Constants = NoConstants;
  struct Push {
    Address processed, inputs, rows;
    uint32_t vocab_size;
  };
};
static_assert(sizeof(ApplyBiasKernel::Push) == 28);

}  // namespace llmrt::vulkan
