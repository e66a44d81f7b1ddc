// shaders/move_blocks.comp
#pragma once

#include "backends/vulkan/kernel.h"

namespace llmrt::vulkan {

struct MoveBlocksKernel {
  static constexpr const char* kShader = "move_blocks";
  using Constants = NoConstants;
  struct Push {
    Address inputs, from, to;
    uint32_t count_word, array_word;               // of the inputs' header: how many moves, and where
    uint32_t block_tokens, token_words, num_runs;  // num_runs: k and v times heads
    uint32_t from_layer_words, to_layer_words;
    uint32_t kv_group;  // moves of others are passed over
  };
};
static_assert(sizeof(MoveBlocksKernel::Push) == 56);

}  // namespace llmrt::vulkan
