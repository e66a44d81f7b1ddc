// shaders/gather_rows.comp
#pragma once

#include "backends/vulkan/kernel.h"

namespace llmrt::vulkan {

struct GatherRowsKernel {
  static constexpr const char* kShader = "gather_rows";
  using Constants = NoConstants;
  struct Push {
    Address x, result, inputs;  // inputs: of the sample list
    uint32_t columns;
  };
};
static_assert(sizeof(GatherRowsKernel::Push) == 28);

}  // namespace llmrt::vulkan
