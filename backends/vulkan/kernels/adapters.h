// shaders/adapter_shrink.comp, adapter_expand.comp, expert_shrink.comp, expert_expand.comp
#pragma once

#include "backends/vulkan/kernel.h"

namespace llmrt::vulkan {

struct AdapterShrinkKernel {
  static constexpr const char* kShader = "adapter_shrink";
  struct Constants {
    uint32_t x_dtype, pool_dtype;
    uint32_t ranks, cols;  // of a group
    uint32_t parts;        // subgroups of a group; without subgroups: invocations
  };
  static constexpr Constant<Constants> kConstants[] = {{"x_dtype", &Constants::x_dtype},
                                                       {"pool_dtype", &Constants::pool_dtype},
                                                       {"ranks", &Constants::ranks},
                                                       {"cols", &Constants::cols},
                                                       {"parts", &Constants::parts}};
  struct Push {
    Address pool, x, result, inputs;
    uint32_t columns, result_columns;
    uint32_t group, num_groups, header;  // header: the word of the inputs that counts the items
  };
};
static_assert(sizeof(AdapterShrinkKernel::Push) == 52);

struct AdapterExpandKernel {
  static constexpr const char* kShader = "adapter_expand";
  struct Constants {
    uint32_t pool_dtype;
    uint32_t cols;  // rows of a group
  };
  static constexpr Constant<Constants> kConstants[] = {{"pool_dtype", &Constants::pool_dtype},
                                                       {"cols", &Constants::cols}};
  struct Push {
    Address pool, y, result, inputs;
    uint32_t y_columns, result_columns;
    uint32_t group, num_groups, header;
  };
};
static_assert(sizeof(AdapterExpandKernel::Push) == 52);

struct ExpertShrinkKernel {
  static constexpr const char* kShader = "expert_shrink";
  struct Constants {
    uint32_t x_dtype, pool_dtype;
    uint32_t ranks;  // of a group
    uint32_t parts;  // subgroups of a group; without subgroups: invocations
  };
  static constexpr Constant<Constants> kConstants[] = {{"x_dtype", &Constants::x_dtype},
                                                       {"pool_dtype", &Constants::pool_dtype},
                                                       {"ranks", &Constants::ranks},
                                                       {"parts", &Constants::parts}};
  struct Push {
    Address pool, x, result, inputs, ids;
    uint32_t columns, result_columns;
    uint32_t group, num_groups, header;
    uint32_t per_row, x_per_row;
  };
};
static_assert(sizeof(ExpertShrinkKernel::Push) == 68);

struct ExpertExpandKernel {
  static constexpr const char* kShader = "expert_expand";
  enum Mode : uint32_t { kClear, kTerm, kJoin };  // twin: shaders/expert_expand.comp
  struct Constants {
    uint32_t pool_dtype, mode;
  };
  static constexpr Constant<Constants> kConstants[] = {{"pool_dtype", &Constants::pool_dtype},
                                                       {"mode", &Constants::mode}};
  struct Push {
    Address pool, y, result, weights, inputs, ids, count;
    uint32_t y_columns, result_columns;
    uint32_t group, num_groups, header;
    uint32_t per_row;
  };
};
static_assert(sizeof(ExpertExpandKernel::Push) == 80);

}  // namespace llmrt::vulkan
