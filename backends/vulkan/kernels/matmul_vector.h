// shaders/matmul_vector.comp
#pragma once

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/kernels/matmul_push.h"

namespace llmrt::vulkan {

struct MatmulVectorKernel {
  static constexpr const char* kShader = "matmul_vector";
  struct Constants {
    uint32_t layout;  // layout_constant
    uint32_t rows;    // weight rows of a team
    uint32_t cols;    // rows of x
    uint32_t x_dtype;
    uint32_t bias;
    uint32_t unroll;  // units of each row that a lane loads before it multiplies
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"layout", &Constants::layout},   {"rows", &Constants::rows}, {"cols", &Constants::cols},
      {"x_dtype", &Constants::x_dtype}, {"bias", &Constants::bias}, {"unroll", &Constants::unroll},
  };
  using Push = MatmulPush;
};

}  // namespace llmrt::vulkan
