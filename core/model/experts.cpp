// The feed-forward part in which a token goes to a few of many experts: the sum over them of weight *
// down(activation(gate x, up x)).
#include "core/base/check.h"
#include "core/model/decoder_parts.h"

namespace llmrt {

namespace {

// The shared experts' part, added to that of the others.
TensorId add_shared(uint32_t layer, TensorId normed, TensorId routed, ListBuilder* b) {
  const LayerSpec& spec = b->model.config.layers[layer];
  const LayerWeights& w = b->model.layers[layer];
  const uint32_t ffn = spec.experts.shared_width, width = b->model.config.width;
  const TensorId both = b->tensor("shared_gate_up", layer, 2 * ffn, DType::kF32);
  b->add(Matmul{normed, w.shared_gate_up, both});
  const TensorId activated = b->tensor("shared_act", layer, ffn, b->caps.activation_dtype);
  b->add(GatedActivation{both, spec.activation, activated});
  const TensorId out = b->tensor("shared_out", layer, width, DType::kF32);
  b->add(Matmul{activated, w.shared_down, out});
  const TensorId sum = b->tensor("ffn_sum", layer, width, DType::kF32);
  b->add(Add{routed, out, sum});
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
  const TensorId out = b->tensor("ffn_out", layer, b->model.config.width, DType::kF32);
  b->add(ExpertDown{activated, ids, weights, w.down, num_experts, out});
  if (experts.shared_width > 0)
    return b->add_post_norm("ffn_post", layer, add_shared(layer, normed, out, b), w.ffn_post_norm);
  return b->add_post_norm("ffn_post", layer, out, w.ffn_post_norm);
}

}  // namespace llmrt
