// shaders/matmul_row.comp
#pragma once

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/kernels/matmul_push.h"

namespace llmrt::vulkan {

struct MatmulRowKernel {
  static constexpr const char* kShader = "matmul_row";
  struct Constants {
    uint32_t layout;  // layout_constant
    uint32_t bias;
    uint32_t columns;    // whole turns
    uint32_t subgroups;  // of a group
    uint32_t m;          // the device's shape: weight rows
    uint32_t n;          // units
    uint32_t k;          // columns
    uint32_t row_lanes;
    uint32_t all_tiles;  // of the weight
    uint32_t activate;
    uint32_t activation;
    uint32_t rope;        // rope_constant; 0: none
    uint32_t pool_dtype;  // kv_constant
    uint32_t groups;
    uint32_t leaves_norm;
    uint32_t norm_eps;  // bits of a float; 0: x is whole
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"layout", &Constants::layout},
      {"bias", &Constants::bias},
      {"columns", &Constants::columns},
      {"subgroups", &Constants::subgroups},
      {"m", &Constants::m},
      {"n", &Constants::n},
      {"k", &Constants::k},
      {"row_lanes", &Constants::row_lanes},
      {"all_tiles", &Constants::all_tiles},
      {"activate", &Constants::activate},
      {"activation", &Constants::activation},
      {"rope", &Constants::rope},
      {"pool_dtype", &Constants::pool_dtype},
      {"groups", &Constants::groups},
      {"leaves_norm", &Constants::leaves_norm},
      {"norm_eps", &Constants::norm_eps},
  };
  using Push = MatmulEndsPush;
};

}  // namespace llmrt::vulkan
