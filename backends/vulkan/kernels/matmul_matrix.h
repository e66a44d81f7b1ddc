// shaders/matmul_matrix.comp
#pragma once

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/kernels/matmul_push.h"

namespace llmrt::vulkan {

struct MatmulMatrixKernel {
  static constexpr const char* kShader = "matmul_matrix";
  struct Constants {
    uint32_t layout;  // layout_constant
    uint32_t bias;
    uint32_t tile_rows;
    uint32_t tile_cols;
    uint32_t part_rows;  // of a subgroup
    uint32_t part_cols;
    uint32_t slices;
    uint32_t m;       // the device's shape: rows of x
    uint32_t n;       // rows of the weight
    uint32_t k;       // columns
    uint32_t ahead;   // steps whose loads are under way
    uint32_t serial;  // splits that one workgroup makes one after the other
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"layout", &Constants::layout},
      {"bias", &Constants::bias},
      {"tile_rows", &Constants::tile_rows},
      {"tile_cols", &Constants::tile_cols},
      {"part_rows", &Constants::part_rows},
      {"part_cols", &Constants::part_cols},
      {"slices", &Constants::slices},
      {"m", &Constants::m},
      {"n", &Constants::n},
      {"k", &Constants::k},
      {"ahead", &Constants::ahead},
      {"serial", &Constants::serial},
  };
  using Push = MatmulSplitPush;
};

}  // namespace llmrt::vulkan
