// The layers of one KV group, as their work lists need to know them.
#pragma once

#include <cstdint>

namespace llmrt {

// Tiles of keys begin at multiples of it.
inline constexpr uint32_t kKeysMultiple = 16;

// Layers with states have no work lists: no heads.
struct AttentionGroup {
  uint32_t num_heads = 0, num_kv_heads = 0;  // heads of the layer with the most of them
  uint32_t window = 0;                       // 0 = all keys
  bool is_latent = false;                    // keys are values too: a work has all heads, so its keys take long

  // The first key in the window of a query at that position, and the first key of the tile that holds it.
  uint32_t first_key(uint32_t position) const { return window && position >= window ? position - window + 1 : 0; }
  uint32_t first_tile(uint32_t position) const { return first_key(position) / kKeysMultiple * kKeysMultiple; }
};

// Rows of a step with at most this many tokens go to the decode kernel.
inline constexpr uint32_t kDecodeRowTokens = 4;

}  // namespace llmrt
