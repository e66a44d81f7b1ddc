// The shapes of synthetic models, as the metadata that a file of the model has: read as a file's is.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/weights/metadata.h"

namespace llmrt {

// A number under "<architecture>.<key>".
struct ShapeKey {
  const char* key;
  double value;
  bool is_integer;
  const char* text = nullptr;  // instead of the number
  // Instead of one number an array of one a layer: `value` for those of Shape::parts with this letter, else 0.
  char part = 0;
  std::span<const int32_t> numbers = {};  // instead of the number too
};

struct Shape {
  const char* name;
  const char* architecture;
  uint32_t num_layers, width, ffn_width, num_heads, num_kv_heads, head_dim, vocab_size, context_max;
  float rope_base, rms_eps;
  bool is_tied;                    // the head is the embedding
  bool llama3_scaling = false;     // by a tensor of divisors, as llama files have it
  std::span<const ShapeKey> more;  // what the architecture has beside
  const char* parts = "";          // a letter a layer, where ShapeKey::part asks for it
  bool has_draft_layer = false;    // behind its own

  std::vector<int32_t> numbers_of(const ShapeKey& key) const;  // of an array
};

std::span<const Shape> shapes();
const Shape* find_shape(std::string_view name);  // null: not known

// add(ShapeKey) for every key of the shape, without "<architecture>.".
template <class Add>
void each_key(const Shape& shape, Add add_key) {
  // A key of `more` stands for the usual one.
  const auto add = [&](const ShapeKey& key) {
    for (const ShapeKey& other : shape.more)
      if (std::string_view(other.key) == key.key) return;
    add_key(key);
  };
  add(ShapeKey{"block_count", double(shape.num_layers + shape.has_draft_layer), true});
  if (shape.has_draft_layer) add(ShapeKey{"nextn_predict_layers", 1, true});
  add(ShapeKey{"context_length", double(shape.context_max), true});
  add(ShapeKey{"embedding_length", double(shape.width), true});
  add(ShapeKey{"feed_forward_length", double(shape.ffn_width), true});
  add(ShapeKey{"attention.head_count", double(shape.num_heads), true});
  add(ShapeKey{"attention.head_count_kv", double(shape.num_kv_heads), true});
  add(ShapeKey{"attention.key_length", double(shape.head_dim), true});
  add(ShapeKey{"attention.value_length", double(shape.head_dim), true});
  add(ShapeKey{"attention.layer_norm_rms_epsilon", double(shape.rms_eps), false});
  add(ShapeKey{"rope.freq_base", double(shape.rope_base), false});
  add(ShapeKey{"rope.dimension_count", double(shape.head_dim), true});
  add(ShapeKey{"vocab_size", double(shape.vocab_size), true});
  for (const ShapeKey& key : shape.more) add_key(key);
}

}  // namespace llmrt
