// shaders/elementwise.comp
#pragma once

#include "backends/vulkan/kernel.h"

namespace llmrt::vulkan {

struct ElementwiseKernel {
  static constexpr const char* kShader = "elementwise";
  struct Constants {
    uint32_t op;  // Activation, or one of elementwise.cpp
    uint32_t out_dtype;
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"op", &Constants::op},
      {"out_dtype", &Constants::out_dtype},
  };
  struct Push {
    Address a, b, result, count;
    uint32_t columns;
    float factor;
  };
};
static_assert(sizeof(ElementwiseKernel::Push) == 40);

}  // namespace llmrt::vulkan
