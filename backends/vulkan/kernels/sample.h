// shaders/sample.comp
#pragma once

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/kernels/logits_row.h"

namespace llmrt::vulkan {

struct SampleKernel {
  static constexpr const char* kShader = "sample";
  using Constants = NoConstants;
  using Push = LogitsRowPush;
};

}  // namespace llmrt::vulkan
