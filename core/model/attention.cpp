// Attention of a layer over keys and values in a paged cache: all of them, or those in a window.
#include "core/base/check.h"
#include "core/model/decoder_parts.h"

namespace llmrt {

namespace {

TensorId add_output_gate(uint32_t layer, TensorId normed, TensorId attended, ListBuilder* b) {
  const LayerSpec& spec = b->model.config.layers[layer];
  const uint32_t columns = spec.num_heads * spec.head_dim;
  const TensorId gate = b->tensor("attn_gate", layer, columns, DType::kF32);
  b->add_matmul(normed, b->model.layers[layer].attention_gate, gate);
  const TensorId gated = b->tensor("attn_gated", layer, columns, b->caps.activation_dtype);
  b->add(SigmoidGate{attended, gate, gated});
  return gated;
}

}  // namespace

TensorId add_attention(uint32_t layer, const StepTensors& step, TensorId x, TensorId delta, ListBuilder* b) {
  const LayerSpec& spec = b->model.config.layers[layer];
  const LayerWeights& w = b->model.layers[layer];
  const uint32_t heads = spec.num_heads, kv_heads = spec.num_kv_heads, dim = spec.head_dim;
  LLMRT_CHECK(spec.attention == AttentionKind::kFull || spec.attention == AttentionKind::kWindow, "check_layers");
  const TensorId normed = b->add_norm("attn_in", layer, x, delta, w.attention_norm);
  const bool reads_other = spec.cache_of >= 0;
  const uint32_t own_kv_heads = reads_other ? 0 : kv_heads;
  const TensorId qkv = b->tensor("qkv", layer, (heads + 2 * own_kv_heads) * dim, DType::kF32);
  b->add_matmul(normed, w.qkv, qkv);
  const float eps = b->model.config.rms_eps;
  if (spec.qk_norm && spec.joined_qk_norm)
    b->add(JoinedQkNorm{qkv, w.q_norm, w.k_norm, heads, own_kv_heads, dim, eps});
  else if (spec.qk_norm)
    b->add(QkNorm{qkv, w.q_norm, w.k_norm, heads, own_kv_heads, dim, eps, w.v_norm});
  const RopeSpec& rope = spec.rope;
  if (rope.dim > 0)
    b->add(Rope{qkv, step.positions, b->model.rope_freqs[rope.freqs_idx], heads, own_kv_heads, dim, rope.dim,
                rope.pairing, rope.magnitude});
  if (!reads_other)
    b->add(KvWrite{qkv, step.kv_slots[spec.cache_group], spec.cache_group, spec.cache_layer, heads, kv_heads, dim,
                   w.kv_scales});
  const DType out_dtype = b->caps.activation_dtype;
  TensorId attended = b->tensor("attn", layer, heads * dim, spec.output_gate ? DType::kF32 : out_dtype);
  b->add(PagedAttention{qkv, attended, spec.cache_group, spec.cache_layer, heads, kv_heads, dim, spec.attention_scale,
                        spec.window, spec.soft_cap, w.kv_scales, w.sinks, reads_other});
  if (spec.output_gate) attended = add_output_gate(layer, normed, attended, b);
  const TensorId out = b->tensor("attn_out", layer, b->model.config.width, DType::kF32);
  b->add_matmul(attended, w.output, out);
  return b->add_post_norm("attn_post", layer, out, w.attention_post_norm);
}

}  // namespace llmrt
