// shaders/matmul_lanes.comp
#pragma once

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/kernels/matmul_push.h"

namespace llmrt::vulkan {

struct MatmulLanesKernel {
  static constexpr const char* kShader = "matmul_lanes";
  struct Constants {
    uint32_t layout;  // layout_constant
    uint32_t rows;    // weight rows of a lane
    uint32_t cols;
    uint32_t x_dtype;
    uint32_t bias;
    uint32_t activate;
    uint32_t activation;
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"layout", &Constants::layout},         {"rows", &Constants::rows}, {"cols", &Constants::cols},
      {"x_dtype", &Constants::x_dtype},       {"bias", &Constants::bias}, {"activate", &Constants::activate},
      {"activation", &Constants::activation},
  };
  using Push = MatmulPush;
};

}  // namespace llmrt::vulkan
