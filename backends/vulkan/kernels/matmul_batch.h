// shaders/matmul_batch.comp
#pragma once

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/kernels/matmul_push.h"

namespace llmrt::vulkan {

struct MatmulBatchKernel {
  static constexpr const char* kShader = "matmul_batch";
  struct Constants {
    uint32_t layout;  // layout_constant
    uint32_t bias;
    uint32_t subgroups;  // of a group
    uint32_t m;          // the device's shape: weight rows
    uint32_t n;          // rows of x
    uint32_t k;          // columns
    uint32_t row_lanes;
    uint32_t tail;  // a row's units are no multiple of a step's
    uint32_t activate;
    uint32_t activation;
    uint32_t parts;
    uint32_t matrices;
    uint32_t step_units;
    uint32_t leaves_parts;
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"layout", &Constants::layout},
      {"bias", &Constants::bias},
      {"subgroups", &Constants::subgroups},
      {"m", &Constants::m},
      {"n", &Constants::n},
      {"k", &Constants::k},
      {"row_lanes", &Constants::row_lanes},
      {"tail", &Constants::tail},
      {"activate", &Constants::activate},
      {"activation", &Constants::activation},
      {"parts", &Constants::parts},
      {"matrices", &Constants::matrices},
      {"step_units", &Constants::step_units},
      {"leaves_parts", &Constants::leaves_parts},
  };
  using Push = MatmulRunsPush;
};

}  // namespace llmrt::vulkan
