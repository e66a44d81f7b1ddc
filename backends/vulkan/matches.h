// Which ops of a list may run as one: the structure alone, whatever the device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/ops/op_flow.h"

namespace llmrt::vulkan {

// What a pattern finds at an op.
struct Match {
  std::vector<uint32_t> ops;  // empty: nothing
  uint32_t num_run = 0;       // the first num_run ops become one step; the others only read its result
  std::string lost;           // not empty: the ops are there, but the list does not let them all run as one
};

// matmul, gated_activation
Match find_gated_matmul(const OpFlow& flow, uint32_t op);
// matmul, rms_norm that adds its result, matmul of that norm
Match find_normed_matmul(const OpFlow& flow, uint32_t op);
// matmul (run alone), rms_norm that adds its result
Match find_parts_matmul(const OpFlow& flow, uint32_t op);
// matmul, any qk_norm, rope, kv_write, paged_attention
Match find_qkv_matmul(const OpFlow& flow, uint32_t op);
// any run of qk_norm, rope, kv_write; a lost match still holds the ops that run
Match find_qkv_heads(const OpFlow& flow, uint32_t op);

}  // namespace llmrt::vulkan
