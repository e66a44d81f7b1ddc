// shaders/matmul_fragment.comp
#pragma once

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/kernels/matmul_push.h"

namespace llmrt::vulkan {

struct MatmulFragmentKernel {
  static constexpr const char* kShader = "matmul_fragment";
  struct Constants {
    uint32_t layout;  // layout_constant
    uint32_t bias;
    uint32_t ahead;      // steps whose weights are under way
    uint32_t subgroups;  // of a group
    uint32_t m;          // the device's shape: weight rows
    uint32_t n;          // rows of x
    uint32_t k;          // columns
    uint32_t row_lanes;
    uint32_t tail;  // a row's units are no multiple of row_lanes
    uint32_t activate;
    uint32_t activation;
    uint32_t rope;        // rope_constant; 0: none
    uint32_t pool_dtype;  // kv_constant
    uint32_t leaves_norm;
    uint32_t norm_eps;  // bits of a float; 0: x is whole
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"layout", &Constants::layout},
      {"bias", &Constants::bias},
      {"ahead", &Constants::ahead},
      {"subgroups", &Constants::subgroups},
      {"m", &Constants::m},
      {"n", &Constants::n},
      {"k", &Constants::k},
      {"row_lanes", &Constants::row_lanes},
      {"tail", &Constants::tail},
      {"activate", &Constants::activate},
      {"activation", &Constants::activation},
      {"rope", &Constants::rope},
      {"pool_dtype", &Constants::pool_dtype},
      {"leaves_norm", &Constants::leaves_norm},
      {"norm_eps", &Constants::norm_eps},
  };
  using Push = MatmulEndsPush;
};

}  // namespace llmrt::vulkan
