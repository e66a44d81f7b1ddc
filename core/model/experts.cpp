// The feed-forward part in which a token goes to a few of many experts: the sum over them of weight *
// down(activation(gate x, up x)).
#include "core/base/check.h"
#include "core/model/decoder_parts.h"

namespace llmrt {

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
  const TensorId out = b->tensor("ffn_out", layer, b->model.config.width, DType::kF32);
  b->add(ExpertDown{activated, ids, weights, w.down, num_experts, out});
  return b->add_post_norm("ffn_post", layer, out, w.ffn_post_norm);
}

}  // namespace llmrt
