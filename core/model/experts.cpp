// The feed-forward part in which a token goes to a few of many experts: the sum over them of weight *
// down(activation(gate x, up x)).
#include "core/base/check.h"
#include "core/model/decoder_parts.h"

namespace llmrt {

namespace {

// `out` and what the dense part beside the experts makes of the same x, which is there in f32 for the router.
TensorId add_shared_part(uint32_t layer, TensorId x, TensorId normed, TensorId out, ListBuilder* b) {
  const LayerWeights& w = b->model.layers[layer];
  const uint32_t width = b->model.config.layers[layer].experts.shared_width;
  const bool is_in_f32 = b->caps.activation_dtype == DType::kF32;
  const TensorId own = is_in_f32 ? normed : b->add_norm("shared_in", layer, x, kNoTensor, w.ffn_norm);
  const TensorId shared = add_dense_products(layer, own, {"shared_", w.shared_gate_up, w.shared_down, width}, b);
  const TensorId sum = b->tensor("ffn_sum", layer, b->model.config.width, DType::kF32);
  b->add(Add{out, shared, sum});
  return sum;
}

}  // namespace

TensorId add_experts(uint32_t layer, TensorId x, TensorId delta, ListBuilder* b) {
  const LayerSpec& spec = b->model.config.layers[layer];
  const LayerWeights& w = b->model.layers[layer];
  const ExpertSpec& experts = spec.experts;
  const uint32_t num_experts = experts.count + experts.rule.num_shared;
  LLMRT_CHECK(b->list.routed_per_row == 0 || b->list.routed_per_row == experts.routed_per_row(), "check_layers");
  b->list.routed_per_row = experts.routed_per_row();
  // In f32 for the router: with rounded numbers it chooses others.
  const TensorId normed = b->tensor("experts_in", layer, b->model.config.width, DType::kF32);
  b->add(RmsNorm{x, delta, w.ffn_norm, b->model.config.rms_eps, normed});
  const TensorId ids = b->routed("expert_ids", layer, 1, DType::kI32);
  const TensorId weights = b->routed("expert_weights", layer, 1, DType::kF32);
  b->add(RouteExperts{normed, w.router, w.router_bias, w.router_correction, w.shared_gate, experts.rule, ids, weights});
  const TensorId activated = b->routed("expert_act", layer, spec.ffn_width, b->caps.activation_dtype);
  b->add(ExpertGateUp{normed, ids, w.gate_up, num_experts, experts.by_expert, spec.activation, activated});
  TensorId out = b->tensor("ffn_out", layer, b->model.config.width, DType::kF32);
  b->add(ExpertDown{activated, ids, weights, w.down, num_experts, out});
  if (experts.shared_width > 0) out = add_shared_part(layer, x, normed, out, b);
  return b->add_post_norm("ffn_post", layer, out, w.ffn_post_norm);
}

}  // namespace llmrt
