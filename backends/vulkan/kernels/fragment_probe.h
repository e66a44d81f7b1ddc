// shaders/fragment_probe.comp
#pragma once

#include "backends/vulkan/kernel.h"

namespace llmrt::vulkan {

struct FragmentProbeKernel {
  static constexpr const char* kShader = "fragment_probe";
  struct Constants {
    uint32_t m;
    uint32_t n;
    uint32_t k;
    uint32_t row_lanes;
    uint32_t sum_run;
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"m", &Constants::m},
      {"n", &Constants::n},
      {"k", &Constants::k},
      {"row_lanes", &Constants::row_lanes},
      {"sum_run", &Constants::sum_run},
  };
  struct Push {
    Address result;  // f16 [m, k], [n, k], then f32 [m, n]
  };
};
static_assert(sizeof(FragmentProbeKernel::Push) == 8);

}  // namespace llmrt::vulkan
