// shaders/rms_norm.comp
#pragma once

#include "backends/vulkan/kernel.h"

namespace llmrt::vulkan {

struct RmsNormKernel {
  static constexpr const char* kShader = "rms_norm";
  struct Constants {
    uint32_t deltas;  // how many are added to x
    uint32_t out_dtype;
    uint32_t quads;  // vec4s of a row that an invocation keeps; 0: it reads the row twice
    uint32_t leaves_factor;
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"deltas", &Constants::deltas},
      {"out_dtype", &Constants::out_dtype},
      {"quads", &Constants::quads},
      {"leaves_factor", &Constants::leaves_factor},
  };
  struct Push {
    Address x, delta, weight, result, count;
    Address factors;  // leaves_factor: what each row was multiplied by
    uint32_t columns;
    float eps;
  };
};
static_assert(sizeof(RmsNormKernel::Push) == 56);

// The group size and `quads` for rows of `columns` numbers. 0 quads: it keeps no numbers and adds up no parts.
uint32_t norm_group_size(const Traits& traits, uint32_t columns);
uint32_t norm_quads(const Traits& traits, uint32_t columns);

}  // namespace llmrt::vulkan
