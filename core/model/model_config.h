// The dimensions and flags of a dense decoder, read from a file's metadata or from a named shape. Plain data; checked
// once by load_model (model.h), trusted afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/ops/ops.h"

namespace llmrt {

struct ModelConfig {
  std::string architecture;  // "llama", "qwen2", "qwen3"
  std::string name;
  uint32_t num_layers = 0;
  uint32_t width = 0;      // D
  uint32_t ffn_width = 0;  // F
  uint32_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  uint32_t vocab_size = 0;
  uint32_t context_max = 0;  // positions that the model was trained for
  float rms_eps = 1e-5f;

  uint32_t rope_dim = 0;
  RopePairing rope_pairing = RopePairing::kInterleaved;
  float rope_magnitude = 1.0f;
  std::vector<float> rope_freqs;  // [rope_dim / 2], scaling applied

  bool qk_norm = false;
  Activation activation = Activation::kSilu;
  float attention_scale = 0;  // 1 / sqrt(head_dim) unless the file says otherwise
  uint32_t window = 0;        // 0 = none; like soft_cap in no model that is loaded so far
  float soft_cap = 0;
};

}  // namespace llmrt
