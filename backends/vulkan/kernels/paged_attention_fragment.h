// shaders/paged_attention_fragment.comp
#pragma once

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/kernels/paged.h"

namespace llmrt::vulkan {

struct PagedAttentionFragmentKernel {
  static constexpr const char* kShader = "paged_attention_fragment";
  struct Constants {
    uint32_t head_dim;
    uint32_t kv_dtype;  // kv_constant
    uint32_t out_dtype;
    uint32_t soft_cap;
    uint32_t sinks;
    uint32_t rows;       // at most n
    uint32_t subgroups;  // of the workgroup
    uint32_t m;          // the device's shape: keys of a tile, numbers of a value
    uint32_t n;          // rows of an item
    uint32_t row_lanes;
    uint32_t has_runs;
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"head_dim", &Constants::head_dim},
      {"kv_dtype", &Constants::kv_dtype},
      {"out_dtype", &Constants::out_dtype},
      {"soft_cap", &Constants::soft_cap},
      {"sinks", &Constants::sinks},
      {"rows", &Constants::rows},
      {"subgroups", &Constants::subgroups},
      {"m", &Constants::m},
      {"n", &Constants::n},
      {"row_lanes", &Constants::row_lanes},
      {"has_runs", &Constants::has_runs},
  };
  using Push = PagedPush;
};

}  // namespace llmrt::vulkan
