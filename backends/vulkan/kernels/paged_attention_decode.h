// shaders/paged_attention_decode.comp
#pragma once

#include "backends/vulkan/kernel.h"
#include "backends/vulkan/kernels/paged.h"

namespace llmrt::vulkan {

struct PagedAttentionDecodeKernel {
  static constexpr const char* kShader = "paged_attention_decode";
  struct Constants {
    uint32_t head_dim;
    uint32_t kv_dtype;  // kv_constant
    uint32_t out_dtype;
    uint32_t soft_cap;
    uint32_t sinks;
    uint32_t rows;
    uint32_t key_lanes;  // a power of two, at least head_dim / 8
    uint32_t subgroups;  // of the workgroup
    uint32_t batch;      // keys under way: a power of two, at most 16
    uint32_t merge_batch;
    uint32_t has_runs;
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"head_dim", &Constants::head_dim},   {"kv_dtype", &Constants::kv_dtype},
      {"out_dtype", &Constants::out_dtype}, {"soft_cap", &Constants::soft_cap},
      {"sinks", &Constants::sinks},         {"rows", &Constants::rows},
      {"key_lanes", &Constants::key_lanes}, {"subgroups", &Constants::subgroups},
      {"batch", &Constants::batch},         {"merge_batch", &Constants::merge_batch},
      {"has_runs", &Constants::has_runs},
  };
  using Push = PagedPush;
};

}  // namespace llmrt::vulkan
