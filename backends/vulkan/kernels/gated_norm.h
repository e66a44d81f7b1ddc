// shaders/gated_norm.comp
#pragma once

#include "backends/vulkan/kernel.h"

namespace llmrt::vulkan {

struct GatedNormKernel {
  static constexpr const char* kShader = "gated_norm";
  struct Constants {
    uint32_t gate_first, out_dtype;
    uint32_t quads;  // vec4s of a run that an invocation keeps; 0: it reads the run twice
    uint32_t shared_weight;
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"gate_first", &Constants::gate_first},
      {"out_dtype", &Constants::out_dtype},
      {"quads", &Constants::quads},
      {"shared_weight", &Constants::shared_weight},
  };
  struct Push {
    Address x, gate, weight, result, count;
    uint32_t group_columns, gate_columns;  // gate_columns: from a row to the next
    float eps;
  };
};
static_assert(sizeof(GatedNormKernel::Push) == 52);

}  // namespace llmrt::vulkan
