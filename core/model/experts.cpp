// The feed-forward part in which a token goes to a few of many experts: the sum over them of weight *
// down(activation(gate x, up x)), where the layer says so of a narrower x, and what a dense part beside them makes.
#include "core/base/check.h"
#include "core/model/decoder_parts.h"

namespace llmrt {

namespace {

class ExpertPart {
 public:
  ExpertPart(uint32_t layer, TensorId x, ListBuilder* b)
      : layer_(layer), x_(x), spec_(b->model.config.layers[layer]), weights_(b->model.layers[layer]), b_(*b) {}

  TensorId add(TensorId delta) {
    const ExpertSpec& experts = spec_.experts;
    const uint32_t num_experts = experts.count + experts.rule.num_shared;
    LLMRT_CHECK(b_.list.routed_per_row == 0 || b_.list.routed_per_row == experts.routed_per_row(), "check_layers");
    b_.list.routed_per_row = experts.routed_per_row();
    // In f32 for the router: with rounded numbers it chooses others.
    normed_ = b_.tensor("experts_in", layer_, width(), DType::kF32);
    b_.add(RmsNorm{x_, delta, weights_.ffn_norm, b_.model.config.rms_eps, normed_});
    const TensorId ids = b_.routed("expert_ids", layer_, 1, DType::kI32);
    const TensorId weights = b_.routed("expert_weights", layer_, 1, DType::kF32);
    b_.add(RouteExperts{normed_, weights_.router, weights_.router_bias, weights_.router_correction,
                        weights_.shared_gate, experts.rule, ids, weights});
    const TensorId in = experts.latent_width > 0 ? add_latent() : normed_;
    const TensorId activated = b_.routed("expert_act", layer_, spec_.ffn_width, b_.caps.activation_dtype);
    const TensorId term = add_term(in, ids);
    b_.add(ExpertGateUp{in, ids, weights_.gate_up, num_experts, experts.by_expert, spec_.activation, activated, term});
    const bool is_narrow = experts.latent_width > 0;
    TensorId out = b_.tensor(is_narrow ? "latent_out" : "ffn_out", layer_, is_narrow ? experts.latent_width : width(),
                             DType::kF32);
    b_.add(ExpertDown{activated, ids, weights, weights_.down, num_experts, out});
    if (const TensorId y = shrink("expert_down_adapter", activated, ids, weights_.down, 1); y != kNoTensor)
      b_.add(ExpertExpand{y, ids, weights, weights_.down, out});
    if (is_narrow) out = widen(out);
    return experts.shared_width > 0 ? add_shared(out) : out;
  }

 private:
  uint32_t width() const { return b_.model.config.width; }

  // A x of the routed rows' adapters, of `parts` matrices of each expert; kNoTensor where the list has none on experts.
  TensorId shrink(const char* what, TensorId x, TensorId ids, WeightGroupId group, uint32_t parts) {
    if (!b_.adapts_experts || !takes_expert_adapters(b_.model.weights.groups[static_cast<size_t>(group)]))
      return kNoTensor;
    const TensorId y = b_.routed(what, layer_, parts * b_.adapter_rank, DType::kF32);
    b_.add(ExpertShrink{x, ids, group, y});
    return y;
  }
  // What adapters add to the products of gate and up.
  TensorId add_term(TensorId x, TensorId ids) {
    const uint32_t parts = has_other_half(spec_.activation) ? 2 : 1;
    const TensorId y = shrink("expert_up_adapter", x, ids, weights_.gate_up, parts);
    if (y == kNoTensor) return kNoTensor;
    const TensorId term = b_.routed("expert_term", layer_, parts * spec_.ffn_width, DType::kF32);
    b_.add(ExpertTerm{y, ids, weights_.gate_up, term});
    return term;
  }

  // What matmuls read: x is normed once more, where they take other numbers than the router.
  TensorId matmul_in() {
    if (b_.caps.activation_dtype == DType::kF32) return normed_;
    if (matmul_in_ == kNoTensor) matmul_in_ = b_.add_norm("ffn_in", layer_, x_, kNoTensor, weights_.ffn_norm);
    return matmul_in_;
  }
  TensorId add_latent() {
    const TensorId latent = b_.tensor("latent_in", layer_, spec_.experts.latent_width, DType::kF32);
    b_.add_matmul(matmul_in(), weights_.latent_down, latent);
    return latent;
  }
  TensorId widen(TensorId latent) {
    if (b_.caps.activation_dtype != DType::kF32) {
      const TensorId rounded =
          b_.tensor("latent_rounded", layer_, spec_.experts.latent_width, b_.caps.activation_dtype);
      b_.add(Scale{latent, 1, rounded});
      latent = rounded;
    }
    const TensorId out = b_.tensor("ffn_out", layer_, width(), DType::kF32);
    b_.add_matmul(latent, weights_.latent_up, out);
    return out;
  }
  TensorId add_shared(TensorId out) {
    const DensePart part{"shared_", weights_.shared_gate_up, weights_.shared_down, spec_.experts.shared_width};
    const TensorId shared = add_dense_products(layer_, matmul_in(), part, &b_);
    const TensorId sum = b_.tensor("ffn_sum", layer_, width(), DType::kF32);
    b_.add(Add{out, shared, sum});
    return sum;
  }

  const uint32_t layer_;
  const TensorId x_;
  const LayerSpec& spec_;
  const LayerWeights& weights_;
  ListBuilder& b_;
  TensorId normed_ = kNoTensor, matmul_in_ = kNoTensor;
};

}  // namespace

TensorId add_experts(uint32_t layer, TensorId x, TensorId delta, ListBuilder* b) {
  const TensorId out = ExpertPart(layer, x, b).add(delta);
  return b->add_post_norm("ffn_post", layer, out, b->model.layers[layer].ffn_post_norm);
}

}  // namespace llmrt
