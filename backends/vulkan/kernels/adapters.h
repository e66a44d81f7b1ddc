// shaders/adapter_shrink.comp, adapter_expand.comp
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

}  // namespace llmrt::vulkan
