// What a tensor of a Hugging Face folder is, by its name: GGUF's name for it, or what it is a part of.
#pragma once

#include <string>
#include <string_view>

#include "core/weights/hf_config.h"

namespace llmrt {

struct HfPlace {
  enum class Role {
    kUnknown,
    kIgnored,  // follows from config.json, or is for computing with activations in fp8
    kTensor,   // the tensor itself
    kExpert,   // that of one expert
    kFused,    // a part of fused experts; the canonical name ends as the folder's does: "blk.0.gate_up_proj_blocks"
    kKvScale,  // of the KV cache, one number
    kImage,    // of a part that reads images
  };
  Role role = Role::kUnknown;
  std::string canonical;  // "blk.0.attn_q.weight"
  uint64_t expert = 0;
  uint64_t draft_layers = 0;  // a layer behind the model's: so many there are at least
  bool is_scale = false;      // not the tensor, but the scales of its numbers
};

inline constexpr uint64_t kHfDraftLayersMax = 16;

HfPlace place_of(std::string_view name, const HfConfig& config);

}  // namespace llmrt
