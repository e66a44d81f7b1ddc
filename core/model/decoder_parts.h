// The parts that decoder.cpp puts together, one file each: attention.cpp, latent_attention.cpp, recurrent_parts.cpp,
// dense_ffn.cpp, experts.cpp. A part reads x, the stream of hidden states, adds `delta` to it, which the part before
// made, and returns what the next part adds. So a backend can make the addition and the norm behind it in one.
#pragma once

#include <string>

#include "core/backend/caps.h"
#include "core/model/decoder.h"
#include "core/model/model.h"
#include "core/ops/op_list.h"

namespace llmrt {

// The tensors that prepare_rows makes for every layer.
struct StepTensors {
  TensorId tokens, positions, row_slots;
  GroupTensors kv_slots;  // by cache group
};

// The list of one row kind that is being built.
struct ListBuilder {
  const Model& model;
  const Caps& caps;
  Rows rows;
  OpList list;
  uint32_t adapter_rank = 0;    // of each part of a group; 0: a list for rows without adapters
  Expansion expansion = {};     // of latents
  bool adapts_experts = false;  // with it: rows' adapters may change experts too

  TensorId tensor(std::string name, uint32_t columns, DType dtype, Storage storage = Storage::kArena) {
    return list.add_tensor({std::move(name), rows, columns, dtype, storage});
  }
  // A tensor of a layer; `what` names it: "qkv" becomes "qkv.3".
  TensorId tensor(const char* what, uint32_t layer, uint32_t columns, DType dtype);
  // One with OpList::routed_per_row rows for each of the list's.
  TensorId routed(const char* what, uint32_t layer, uint32_t columns, DType dtype);
  template <class T>
  void add(T op) {
    list.ops.emplace_back(op);
  }

  // out = x times the group's matrix, and what rows' adapters add to it.
  void add_matmul(TensorId x, WeightGroupId group, TensorId out);
  // x += delta; returns x normed, as input of a matmul.
  TensorId add_norm(const char* what, uint32_t layer, TensorId x, TensorId delta, WeightId weight);
  // What a part adds to the stream: `out`, what it computed, normed where the layer has a post norm (`weight` >= 0) and
  // multiplied by ModelConfig::residual_scale.
  TensorId add_post_norm(const char* what, uint32_t layer, TensorId out, WeightId weight);
};

TensorId add_attention(uint32_t layer, const StepTensors& step, TensorId x, TensorId delta, ListBuilder* b);
TensorId add_latent_attention(uint32_t layer, const StepTensors& step, TensorId x, TensorId delta, ListBuilder* b);
TensorId add_recurrent(uint32_t layer, TensorId x, TensorId delta, ListBuilder* b);
// The one of them that the layer has; `delta` where it has none.
TensorId add_first_part(uint32_t layer, const StepTensors& step, TensorId x, TensorId delta, ListBuilder* b);
TensorId add_dense_ffn(uint32_t layer, TensorId x, TensorId delta, ListBuilder* b);
// A dense part's products of a normed x; `what` begins the names of what it makes.
struct DensePart {
  const char* what;
  WeightGroupId gate_up, down;
  uint32_t width;  // F
};
TensorId add_dense_products(uint32_t layer, TensorId normed, const DensePart& part, ListBuilder* b);
TensorId add_experts(uint32_t layer, TensorId x, TensorId delta, ListBuilder* b);
// Likewise.
TensorId add_feed_forward(uint32_t layer, TensorId x, TensorId delta, ListBuilder* b);

}  // namespace llmrt
