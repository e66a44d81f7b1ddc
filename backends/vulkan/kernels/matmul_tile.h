// shaders/matmul_tile.comp
#pragma once

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/kernels/matmul_push.h"

namespace llmrt::vulkan {

struct MatmulTileKernel {
  static constexpr const char* kShader = "matmul_tile";
  struct Constants {
    uint32_t layout;  // layout_constant
    uint32_t x_dtype;
    uint32_t bias;
    uint32_t quads;
    uint32_t col_lanes;
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"layout", &Constants::layout}, {"x_dtype", &Constants::x_dtype},     {"bias", &Constants::bias},
      {"quads", &Constants::quads},   {"col_lanes", &Constants::col_lanes},
  };
  using Push = MatmulSplitPush;
};

}  // namespace llmrt::vulkan
