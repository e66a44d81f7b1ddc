// The feed-forward part that every token passes: down(activation(gate x) * up x), or down(activation(up x)).
#include <fmt/format.h>

#include "core/base/check.h"
#include "core/model/decoder_parts.h"

namespace llmrt {

TensorId add_dense_products(uint32_t layer, TensorId normed, const DensePart& part, ListBuilder* b) {
  const auto named = [&](const char* end) { return fmt::format("{}{}.{}", part.what, end, layer); };
  const Activation activation = b->model.config.layers[layer].activation;
  const TensorId gate_up = b->tensor(named("gate_up"), (has_other_half(activation) ? 2 : 1) * part.width, DType::kF32);
  b->add_matmul(normed, part.gate_up, gate_up);
  const TensorId activated = b->tensor(named("ffn_act"), part.width, b->caps.activation_dtype);
  b->add(GatedActivation{gate_up, activation, activated});
  const TensorId out = b->tensor(named("ffn_out"), b->model.config.width, DType::kF32);
  b->add_matmul(activated, part.down, out);
  return out;
}

TensorId add_dense_ffn(uint32_t layer, TensorId x, TensorId delta, ListBuilder* b) {
  const LayerSpec& spec = b->model.config.layers[layer];
  const LayerWeights& w = b->model.layers[layer];
  LLMRT_CHECK(spec.feed_forward == FeedForwardKind::kDense, "check_layers");
  const TensorId normed = b->add_norm("ffn_in", layer, x, delta, w.ffn_norm);
  const TensorId out = add_dense_products(layer, normed, {"", w.gate_up, w.down, spec.ffn_width}, b);
  return b->add_post_norm("ffn_post", layer, out, w.ffn_post_norm);
}

}  // namespace llmrt
