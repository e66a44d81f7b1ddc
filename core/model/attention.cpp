// Attention of a layer over keys and values in a paged cache: all of them, or those in a window.
#include "core/base/check.h"
#include "core/model/decoder_parts.h"

namespace llmrt {

TensorId add_attention(uint32_t layer, const StepTensors& step, TensorId x, TensorId delta, ListBuilder* b) {
  const LayerSpec& spec = b->model.config.layers[layer];
  const LayerWeights& w = b->model.layers[layer];
  const uint32_t heads = spec.num_heads, kv_heads = spec.num_kv_heads, dim = spec.head_dim;
  LLMRT_CHECK(spec.attention == AttentionKind::kFull || spec.attention == AttentionKind::kWindow, "check_layers");
  const TensorId normed = b->add_norm("attn_in", layer, x, delta, w.attention_norm);
  const TensorId qkv = b->tensor("qkv", layer, (heads + 2 * kv_heads) * dim, DType::kF32);
  b->add(Matmul{normed, w.qkv, qkv});
  if (spec.qk_norm) b->add(QkNorm{qkv, w.q_norm, w.k_norm, heads, kv_heads, dim, b->model.config.rms_eps});
  const RopeSpec& rope = spec.rope;
  b->add(Rope{qkv, step.positions, b->model.rope_freqs[rope.freqs_idx], heads, kv_heads, dim, rope.dim, rope.pairing,
              rope.magnitude});
  b->add(KvWrite{qkv, step.kv_slots[spec.cache_group], spec.cache_group, spec.cache_layer, heads, kv_heads, dim,
                 w.kv_scales});
  const TensorId attended = b->tensor("attn", layer, heads * dim, b->caps.activation_dtype);
  b->add(PagedAttention{qkv, attended, spec.cache_group, spec.cache_layer, heads, kv_heads, dim, spec.attention_scale,
                        spec.window, spec.soft_cap, w.kv_scales, w.sinks});
  const TensorId out = b->tensor("attn_out", layer, b->model.config.width, DType::kF32);
  b->add(Matmul{attended, w.output, out});
  return b->add_post_norm("attn_post", layer, out, w.attention_post_norm);
}

}  // namespace llmrt
