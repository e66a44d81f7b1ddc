// The shapes of synthetic models, as the metadata that a file of the model has: read as a file's is.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/weights/metadata.h"

namespace llmrt {

// A number under "<architecture>.<key>".
struct ShapeKey {
  const char* key;
  double value;
  bool is_integer;
};

struct Shape {
  const char* name;
  const char* architecture;
  uint32_t num_layers, width, ffn_width, num_heads, num_kv_heads, head_dim, vocab_size, context_max;
  float rope_base, rms_eps;
  bool is_tied;                    // the head is the embedding
  bool llama3_scaling = false;     // by a tensor of divisors, as llama files have it
  std::span<const ShapeKey> more;  // what the architecture has beside
};

std::span<const Shape> shapes();
const Shape* find_shape(std::string_view name);  // null: not known

// add(key, number, is_integer) for every key of the shape, without "<architecture>.".
template <class Add>
void each_key(const Shape& shape, Add add) {
  add("block_count", shape.num_layers, true);
  add("context_length", shape.context_max, true);
  add("embedding_length", shape.width, true);
  add("feed_forward_length", shape.ffn_width, true);
  add("attention.head_count", shape.num_heads, true);
  add("attention.head_count_kv", shape.num_kv_heads, true);
  add("attention.key_length", shape.head_dim, true);
  add("attention.value_length", shape.head_dim, true);
  add("attention.layer_norm_rms_epsilon", shape.rms_eps, false);
  add("rope.freq_base", shape.rope_base, false);
  add("rope.dimension_count", shape.head_dim, true);
  add("vocab_size", shape.vocab_size, true);
  for (const ShapeKey& key : shape.more) add(key.key, key.value, key.is_integer);
}

}  // namespace llmrt
