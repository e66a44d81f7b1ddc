// Latent attention of a layer (latent_ops.h): queries become as long as the cache's rows, and values are made of what
// attention adds up.
#include <algorithm>

#include "core/model/decoder_parts.h"

namespace llmrt {

namespace {

// What queries are made of: x, or a latent of their own that is normed.
TensorId add_queries(uint32_t layer, TensorId normed, ListBuilder* b) {
  const LayerSpec& spec = b->model.config.layers[layer];
  const LatentWeights& w = b->model.layers[layer].latent;
  TensorId from = normed;
  if (spec.latent.query_rank > 0) {
    const TensorId latent = b->tensor("query_latent", layer, spec.latent.query_rank, DType::kF32);
    b->add_matmul(normed, w.query_latent, latent);
    from = b->tensor("query_latent_normed", layer, spec.latent.query_rank, b->caps.activation_dtype);
    b->add(RmsNorm{latent, kNoTensor, w.query_norm, b->model.config.rms_eps, from});
  }
  const TensorId q = b->tensor("q", layer, spec.num_heads * spec.latent.key_dim(), DType::kF32);
  b->add_matmul(from, w.query, q);
  return q;
}

// Attention of the rows whose latents are expanded, some heads after the other: their part of the values.
void add_expanded_attention(uint32_t layer, TensorId q, TensorId values, ListBuilder* b) {
  const LayerSpec& spec = b->model.config.layers[layer];
  const LayerWeights& w = b->model.layers[layer];
  const LatentSpec& latent = spec.latent;
  for (uint32_t first = 0; first < spec.num_heads; first += b->expansion.heads) {
    const uint32_t heads = std::min(b->expansion.heads, spec.num_heads - first);
    b->add(ExpandLatent{w.latent.key_rows, w.latent.value, spec.cache_group, spec.cache_layer, b->expansion.kv_group,
                        first, heads, latent.nope_dim, latent.rank, latent.rope_dim, latent.value_dim, w.kv_scales});
    PagedAttention attention{q,     values,           b->expansion.kv_group, 0, heads,
                             heads, latent.key_dim(), spec.attention_scale,  0, 0};
    attention.queries_only = true;
    attention.value_dim = latent.value_dim;
    attention.head_first = first;
    b->add(attention);
  }
}

}  // namespace

TensorId add_latent_attention(uint32_t layer, const StepTensors& step, TensorId x, TensorId delta, ListBuilder* b) {
  const LayerSpec& spec = b->model.config.layers[layer];
  const LayerWeights& w = b->model.layers[layer];
  const LatentSpec& latent = spec.latent;
  const uint32_t heads = spec.num_heads;
  const DType dtype = b->caps.activation_dtype;
  const TensorId normed = b->add_norm("attn_in", layer, x, delta, w.attention_norm);
  const TensorId q = add_queries(layer, normed, b);
  const TensorId kv = b->tensor("kv_latent", layer, latent.row_dim(), DType::kF32);
  b->add_matmul(normed, w.latent.keys_values, kv);
  const TensorId query = b->tensor("query", layer, heads * latent.row_dim(), DType::kF32);
  const bool expands = b->expansion.heads > 0;
  b->add(LatentRows{q, kv, step.positions, step.kv_slots[spec.cache_group], w.latent.norm,
                    b->model.rope_freqs[spec.rope.freqs_idx], spec.cache_group, spec.cache_layer, heads,
                    latent.nope_dim, latent.rank, latent.rope_dim, spec.rope.pairing, spec.rope.magnitude,
                    b->model.config.rms_eps, w.kv_scales, query, expands});
  b->add(HeadMatmul{q, w.latent.key, heads, query, false, expands});
  const TensorId attended = b->tensor("attn", layer, heads * latent.rank, dtype);
  b->add(LatentAttention{query, attended, spec.cache_group, spec.cache_layer, heads, latent.rank, latent.rope_dim,
                         spec.attention_scale, w.kv_scales});
  const TensorId values = b->tensor("attn_values", layer, heads * latent.value_dim, dtype);
  b->add(HeadMatmul{attended, w.latent.value, heads, values, true, expands});
  if (expands) add_expanded_attention(layer, q, values, b);
  const TensorId out = b->tensor("attn_out", layer, b->model.config.width, DType::kF32);
  b->add_matmul(values, w.output, out);
  return b->add_post_norm("attn_post", layer, out, w.attention_post_norm);
}

}  // namespace llmrt
