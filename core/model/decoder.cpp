#include "core/model/decoder.h"

#include <fmt/format.h>

#include "core/ops/step_inputs.h"

namespace llmrt {
namespace {

// Adds tensors of one row kind; names carry the layer.
struct Builder {
  OpList list;
  Rows rows;

  TensorId tensor(std::string name, uint32_t columns, DType dtype, Storage storage = Storage::kArena) {
    return list.add_tensor({std::move(name), rows, columns, dtype, storage});
  }
  template <class T>
  void add(T op) {
    list.ops.emplace_back(op);
  }
};

// The tensors that prepare_rows makes for every layer.
struct StepTensors {
  TensorId tokens, positions, row_slots, kv_slots;
};

std::string of_layer(const char* what, uint32_t layer) {
  return fmt::format("{}.{}", what, layer);
}

// A pre-norm layer is two parts, attention and feed-forward. Each adds `delta`, what the part before it made, to x, and
// returns what the next one adds.
TensorId add_attention(const Model& model, const Caps& caps, uint32_t layer, const StepTensors& step, TensorId x,
                       TensorId delta, Builder* b) {
  const ModelConfig& c = model.config;
  const LayerWeights& w = model.layers[layer];
  const uint32_t qkv_columns = (c.num_heads + 2 * c.num_kv_heads) * c.head_dim;
  const TensorId normed = b->tensor(of_layer("attn_in", layer), c.width, caps.activation_dtype);
  b->add(RmsNorm{x, delta, w.attention_norm, c.rms_eps, normed});
  const TensorId qkv = b->tensor(of_layer("qkv", layer), qkv_columns, DType::kF32);
  b->add(Matmul{normed, w.qkv, qkv});
  if (c.qk_norm) b->add(QkNorm{qkv, w.q_norm, w.k_norm, c.num_heads, c.num_kv_heads, c.head_dim, c.rms_eps});
  b->add(Rope{qkv, step.positions, model.rope_freqs, c.num_heads, c.num_kv_heads, c.head_dim, c.rope_dim,
              c.rope_pairing, c.rope_magnitude});
  b->add(KvWrite{qkv, step.kv_slots, 0, layer, c.num_heads, c.num_kv_heads, c.head_dim, w.kv_scales});
  const TensorId attended = b->tensor(of_layer("attn", layer), c.num_heads * c.head_dim, caps.activation_dtype);
  b->add(PagedAttention{qkv, attended, 0, layer, c.num_heads, c.num_kv_heads, c.head_dim, c.attention_scale, c.window,
                        c.soft_cap, w.kv_scales});
  const TensorId attention_out = b->tensor(of_layer("attn_out", layer), c.width, DType::kF32);
  b->add(Matmul{attended, w.output, attention_out});
  return attention_out;
}

TensorId add_feed_forward(const Model& model, const Caps& caps, uint32_t layer, TensorId x, TensorId delta,
                          Builder* b) {
  const ModelConfig& c = model.config;
  const LayerWeights& w = model.layers[layer];
  const TensorId ffn_in = b->tensor(of_layer("ffn_in", layer), c.width, caps.activation_dtype);
  b->add(RmsNorm{x, delta, w.ffn_norm, c.rms_eps, ffn_in});
  const TensorId gate_up = b->tensor(of_layer("gate_up", layer), 2 * c.ffn_width, DType::kF32);
  b->add(Matmul{ffn_in, w.gate_up, gate_up});
  const TensorId activated = b->tensor(of_layer("ffn_act", layer), c.ffn_width, caps.activation_dtype);
  b->add(GatedActivation{gate_up, c.activation, activated});
  const TensorId ffn_out = b->tensor(of_layer("ffn_out", layer), c.width, DType::kF32);
  b->add(Matmul{activated, w.down, ffn_out});
  return ffn_out;
}

}  // namespace

OpList build_forward(const Model& model, const Caps& caps, uint32_t num_tokens) {
  const ModelConfig& c = model.config;
  Builder b{{"forward", num_tokens, 0, {}, {}}, Rows::kTokens};
  const StepTensors step{b.tensor("tokens", 1, DType::kI32), b.tensor("positions", 1, DType::kI32),
                         b.tensor("row_slots", 1, DType::kI32), b.tensor("kv_slots", 1, DType::kI32)};
  b.add(UpdateRows{});
  b.add(PrepareRows{step.tokens, step.positions, step.row_slots, {step.kv_slots}});
  const TensorId x = b.tensor("x", c.width, DType::kF32);
  b.add(Embed{step.tokens, model.embedding, x});
  TensorId delta = kNoTensor;
  for (uint32_t layer = 0; layer < c.num_layers; ++layer) {
    if (layer > 0) delta = add_feed_forward(model, caps, layer - 1, x, delta, &b);
    delta = add_attention(model, caps, layer, step, x, delta, &b);
  }
  const TensorId hidden = b.tensor("hidden", c.width, DType::kF32, Storage::kHidden);
  b.add(Add{x, delta, hidden});
  return std::move(b.list);
}

OpList build_memory(uint32_t num_kv_groups) {
  OpList list{"memory", 0, 0, {}, {}};
  for (uint32_t g = 0; g < num_kv_groups; ++g)
    list.ops.insert(list.ops.end(), {StoreBlocks{g}, LoadBlocks{g}, CopyBlocks{g}});
  return list;
}

OpList build_sample(const Model& model, const Caps& caps, uint32_t num_sampled) {
  const ModelConfig& c = model.config;
  Builder b{{"sample", 0, num_sampled, {}, {}}, Rows::kSampled};
  const TensorId hidden = b.list.add_tensor({"hidden", Rows::kTokens, c.width, DType::kF32, Storage::kHidden});
  const TensorId gathered = b.tensor("gathered", c.width, DType::kF32);
  b.add(GatherRows{hidden, gathered});
  const TensorId delta = add_feed_forward(model, caps, c.num_layers - 1, gathered, kNoTensor, &b);
  const TensorId normed = b.tensor("final", c.width, caps.activation_dtype);
  b.add(RmsNorm{gathered, delta, model.final_norm, c.rms_eps, normed});
  const TensorId logits = b.tensor("logits", c.vocab_size, DType::kF32);
  b.add(Matmul{normed, model.head, logits});
  const TensorId processed = b.tensor("processed", c.vocab_size, DType::kF32);
  b.add(ApplyPenalties{logits, processed});
  b.add(ApplyBias{processed});
  const TensorId kept = b.tensor("kept", sizeof(FilterResult) / 4, DType::kI32);
  b.add(Filter{logits, processed, kept});
  b.add(Sample{logits, processed, kept});
  b.add(Logprobs{logits, processed, kept});
  return std::move(b.list);
}

}  // namespace llmrt
