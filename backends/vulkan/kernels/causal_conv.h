// shaders/causal_conv.comp
#pragma once

#include "backends/vulkan/kernel.h"

namespace llmrt::vulkan {

struct CausalConvKernel {
  static constexpr const char* kShader = "causal_conv";
  struct Constants {
    uint32_t width, out_dtype;
    uint32_t tile;     // tokens
    uint32_t aligned;  // every row of every tensor is whole vec4s
    uint32_t bias, silu, gate_in, gate_out;
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"width", &Constants::width},     {"out_dtype", &Constants::out_dtype}, {"tile", &Constants::tile},
      {"aligned", &Constants::aligned}, {"bias", &Constants::bias},           {"silu", &Constants::silu},
      {"gate_in", &Constants::gate_in}, {"gate_out", &Constants::gate_out},
  };
  struct Push {
    Address inputs, x, gate_in, gate_out, weight, bias;
    Address records;  // from the state's first number on
    Address tables, result;
    uint32_t channels, x_columns, gate_in_columns, gate_out_columns;  // columns: from a row to the next
    uint32_t record_columns, blocks_row_max, kv_group;
  };
};
static_assert(sizeof(CausalConvKernel::Push) == 100);

}  // namespace llmrt::vulkan
