// shaders/apply_penalties.comp
#pragma once

#include "backends/vulkan/kernel.h"

namespace llmrt::vulkan {

struct ApplyPenaltiesKernel {
  static constexpr const char* kShader = "apply_penalties";
  using Constants = NoConstants;
  struct Push {
    Address logits, processed, inputs, rows, counts;
    uint32_t vocab_size;
  };
};
static_assert(sizeof(ApplyPenaltiesKernel::Push) == 44);

}  // namespace llmrt::vulkan
