// shaders/logprobs.comp
#pragma once

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/kernels/logits_row.h"

namespace llmrt::vulkan {

struct LogprobsKernel {
  static constexpr const char* kShader = "logprobs";
  using Constants = NoConstants;
  using Push = LogitsRowPush;
};

}  // namespace llmrt::vulkan
