// The feed-forward part that every token passes: down(activation(gate x) * up x).
#include "core/base/check.h"
#include "core/model/decoder_parts.h"

namespace llmrt {

TensorId add_dense_ffn(uint32_t layer, TensorId x, TensorId delta, ListBuilder* b) {
  const LayerSpec& spec = b->model.config.layers[layer];
  const LayerWeights& w = b->model.layers[layer];
  LLMRT_CHECK(spec.feed_forward == FeedForwardKind::kDense, "check_layers");
  const TensorId normed = b->add_norm("ffn_in", layer, x, delta, w.ffn_norm);
  const TensorId gate_up = b->tensor("gate_up", layer, 2 * spec.ffn_width, DType::kF32);
  b->add(Matmul{normed, w.gate_up, gate_up});
  const TensorId activated = b->tensor("ffn_act", layer, spec.ffn_width, b->caps.activation_dtype);
  b->add(GatedActivation{gate_up, spec.activation, activated});
  const TensorId out = b->tensor("ffn_out", layer, b->model.config.width, DType::kF32);
  b->add(Matmul{activated, w.down, out});
  return b->add_post_norm("ffn_post", layer, out, w.ffn_post_norm);
}

}  // namespace llmrt
