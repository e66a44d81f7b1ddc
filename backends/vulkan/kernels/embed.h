// shaders/embed.comp
#pragma once

#include "backends/vulkan/kernel.h"

namespace llmrt::vulkan {

struct EmbedKernel {
  static constexpr const char* kShader = "embed";
  struct Constants {
    uint32_t layout;
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"layout", &Constants::layout},
  };
  struct Push {
    Address tokens, weight, result, count;
    uint32_t columns, row_words, row_begin, num_rows;
  };
};
static_assert(sizeof(EmbedKernel::Push) == 48);

}  // namespace llmrt::vulkan
