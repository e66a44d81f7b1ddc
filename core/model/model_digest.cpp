#include "core/model/model_digest.h"

#include <algorithm>

namespace llmrt {
namespace {

constexpr uint64_t kSampleBytes = 4096;

void add_experts(const ExpertSpec& experts, Sha256& hash) {
  const RoutingRule& rule = experts.rule;
  for (const uint32_t value : {experts.count, experts.used, rule.groups, rule.groups_used, rule.num_shared,
                               experts.shared_width, experts.latent_width})
    hash.add(value);
  hash.add(experts.shared_width).add(experts.by_expert).add(experts.has_bias).add(experts.has_correction);
  hash.add(rule.scoring).add(rule.renormalise).add(rule.scale);
}

void add_recurrent(const RecurrentSpec& spec, Sha256& hash) {
  for (const uint32_t value :
       {spec.conv_width, spec.conv_columns, spec.key_heads, spec.value_heads, spec.key_dim, spec.value_dim})
    hash.add(value);
  hash.add(spec.order).add(spec.gates_in_turn);
}

void add_latent(const LatentSpec& spec, Sha256& hash) {
  for (const uint32_t value : {spec.rank, spec.rope_dim, spec.nope_dim, spec.value_dim, spec.query_rank})
    hash.add(value);
}

void add_layer(const LayerSpec& layer, Sha256& hash) {
  hash.add(layer.attention).add(layer.feed_forward).add(layer.activation).add(layer.rope.pairing);
  for (const uint32_t value : {layer.window, layer.num_heads, layer.num_kv_heads, layer.head_dim, layer.rope.freqs_idx,
                               layer.rope.dim, layer.ffn_width})
    hash.add(value);
  for (const float value : {layer.attention_scale, layer.soft_cap, layer.rope.magnitude}) hash.add(value);
  if (layer.feed_forward == FeedForwardKind::kExperts) add_experts(layer.experts, hash);
  if (layer.attention == AttentionKind::kLatent) add_latent(layer.latent, hash);
  if (is_recurrent(layer.attention)) add_recurrent(layer.recurrent, hash);
  hash.add(layer.joined_qk_norm).add(layer.v_norm).add(layer.output_gate).add(layer.values_are_keys);
  hash.add(layer.cache_of).add(layer.sinks).add(layer.qk_norm).add(layer.attention_post_norm).add(layer.ffn_post_norm);
}

void add_config(const ModelConfig& c, Sha256& hash) {
  hash.add_text(c.architecture).add(c.width).add(c.vocab_size).add(c.rms_eps).add(c.embedding_scale);
  hash.add(c.residual_scale).add(c.logit_scale).add(c.logit_soft_cap);
  hash.add(uint64_t{c.layers.size()});
  for (const LayerSpec& layer : c.layers) add_layer(layer, hash);
  for (const std::vector<float>& freqs : c.rope_freqs) hash.add(uint64_t{freqs.size()}).add_all(std::span(freqs));
}

void add_tensor(const WeightTensor& tensor, Sha256& hash) {
  hash.add_text(tensor.name).add(tensor.encoding).add(tensor.rows).add(tensor.columns);
  if (tensor.data == nullptr) {
    std::vector<std::byte> row(tensor.bytes_row());
    for (const uint64_t at : {uint64_t{0}, tensor.rows / 2, tensor.rows - 1}) {
      tensor.generate(at * row.size(), row);
      hash.add_bytes(row);
    }
    return;
  }
  const std::span bytes(tensor.data, tensor.bytes());
  const uint64_t count = std::min<uint64_t>(kSampleBytes, bytes.size());
  for (const uint64_t first : {uint64_t{0}, (bytes.size() - count) / 2, bytes.size() - count})
    hash.add_bytes(bytes.subspan(first, count));
}

}  // namespace

Digest model_digest(const Model& model) {
  Sha256 hash;
  add_config(model.config, hash);
  for (const WeightTensor& tensor : model.weights.tensors) add_tensor(tensor, hash);
  return hash.finish();
}

}  // namespace llmrt
