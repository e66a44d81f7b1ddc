// shaders/qkv.comp
#pragma once

#include "backends/vulkan/kernel.h"

namespace llmrt::vulkan {

struct QkvKernel {
  static constexpr const char* kShader = "qkv";
  struct Constants {
    uint32_t norm;      // 1: of q and k, 2: of v too
    uint32_t rope;      // rope_constant; 0: none
    uint32_t write;     // kv_constant; 0: none
    uint32_t by_pairs;  // no shared memory: all pairs of a head turn, and the pool has 16 bits
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"norm", &Constants::norm},
      {"rope", &Constants::rope},
      {"write", &Constants::write},
      {"by_pairs", &Constants::by_pairs},
  };
  struct Push {
    Address qkv, q_weight, k_weight, v_weight, positions, freqs, kv_slots, data, scales, count;
    uint32_t num_heads, num_kv_heads, head_dim, rope_dim, block_tokens;
    float eps, magnitude;
    float k_scale, v_scale;  // of an fp8-tensor pool
  };
};
static_assert(sizeof(QkvKernel::Push) == 116);

}  // namespace llmrt::vulkan
