// shaders/filter.comp
#pragma once

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/kernels/logits_row.h"

namespace llmrt::vulkan {

struct FilterKernel {
  static constexpr const char* kShader = "filter";
  using Constants = NoConstants;
  using Push = LogitsRowPush;
};

}  // namespace llmrt::vulkan
