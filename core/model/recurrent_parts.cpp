// First parts that keep a state instead of keys and values (recurrent.h), each between one matmul that makes all that
// it reads of a token and one that brings its numbers back to the width of the stream.
#include <cmath>
#include <limits>

#include "core/model/decoder_parts.h"

namespace llmrt {

namespace {

class RecurrentPart {
 public:
  RecurrentPart(uint32_t layer, TensorId normed, ListBuilder* b)
      : layer_(layer),
        layer_spec_(b->model.config.layers[layer]),
        spec_(layer_spec_.recurrent),
        weights_(b->model.layers[layer].recurrent),
        b_(*b) {
    const auto rows = static_cast<uint32_t>(b->model.weights.groups[static_cast<size_t>(weights_.in)].rows);
    in_ = b_.tensor("state_in", layer, rows, DType::kF32);
    b_.add_matmul(normed, weights_.in, in_);
  }

  // out_proj(C * conv(B * X)), with rows of B, C and X behind each other.
  TensorId add_short_conv() {
    const uint32_t width = spec_.conv_columns;
    const TensorId out = b_.tensor("conv", layer_, width, b_.caps.activation_dtype);
    b_.add(CausalConv{columns(2 * width), columns(0), columns(width), weights_.conv, weights_.conv_bias,
                      spec_.conv_width, false, state(0), out});
    return out;
  }

  // Rows of q, k and v, which the convolution passes, of z, betas and alphas.
  TensorId add_gated_delta() {
    const uint32_t z = spec_.conv_columns, betas = z + spec_.value_columns();
    const uint32_t betas_in_turn = spec_.gates_in_turn ? spec_.value_heads / spec_.key_heads : spec_.value_heads;
    const TensorId ruled = b_.tensor("delta_rule", layer_, spec_.value_columns(), DType::kF32);
    b_.add(GatedDelta{.qkv = {add_conv(0), 0},
                      .alpha = columns(betas + betas_in_turn),
                      .beta = columns(betas),
                      .a = weights_.a,
                      .dt_bias = weights_.dt_bias,
                      .key_heads = spec_.key_heads,
                      .value_heads = spec_.value_heads,
                      .key_dim = spec_.key_dim,
                      .value_dim = spec_.value_dim,
                      .order = spec_.order,
                      .gates_in_turn = spec_.gates_in_turn,
                      .normalise = true,
                      .eps = kKeyEps,
                      .scale = 1 / std::sqrt(static_cast<float>(spec_.key_dim)),
                      .state = state(spec_.state_first(), kRingTokens),
                      .out = ruled});
    return add_gated_norm(ruled, z, spec_.value_dim, false);
  }

  // Rows of z, of x, B and C, which the convolution passes, and of dt.
  TensorId add_scan() {
    const uint32_t inner = spec_.value_columns();
    const TensorId conv = add_conv(inner);
    const TensorId scanned = b_.tensor("scan", layer_, inner, DType::kF32);
    b_.add(SelectiveScan{.x = {conv, 0},
                         .b = {conv, inner},
                         .c = {conv, inner + spec_.key_columns()},
                         .dt = columns(inner + spec_.conv_columns),
                         .dt_bias = weights_.dt_bias,
                         .a = weights_.a,
                         .d = weights_.d,
                         .num_heads = spec_.value_heads,
                         .head_dim = spec_.value_dim,
                         .num_groups = spec_.key_heads,
                         .state_dim = spec_.key_dim,
                         .dt_min = 0,
                         .dt_max = std::numeric_limits<float>::max(),
                         .state = state(spec_.state_first(), kRingTokens),
                         .out = scanned});
    return add_gated_norm(scanned, 0, inner / spec_.key_heads, true);
  }

 private:
  static constexpr float kKeyEps = 1e-6f;  // of transformers and of flash-linear-attention, whatever rms_eps is

  Columns columns(uint32_t first) const { return {in_, first}; }
  StatePart state(uint32_t first, uint32_t ring_tokens = 0) const {
    return {layer_spec_.cache_group, layer_spec_.cache_layer, first, ring_tokens};
  }

  TensorId add_conv(uint32_t first) {
    const TensorId out = b_.tensor("conv", layer_, spec_.conv_columns, DType::kF32);
    b_.add(
        CausalConv{columns(first), {}, {}, weights_.conv, weights_.conv_bias, spec_.conv_width, true, state(0), out});
    return out;
  }
  TensorId add_gated_norm(TensorId x, uint32_t gate, uint32_t group_columns, bool gate_first) {
    const TensorId out = b_.tensor("state_normed", layer_, spec_.value_columns(), b_.caps.activation_dtype);
    b_.add(GatedNorm{x, columns(gate), weights_.norm, group_columns, b_.model.config.rms_eps, gate_first, out});
    return out;
  }

  const uint32_t layer_;
  const LayerSpec& layer_spec_;
  const RecurrentSpec& spec_;
  const RecurrentWeights& weights_;
  ListBuilder& b_;
  TensorId in_;
};

}  // namespace

TensorId add_recurrent(uint32_t layer, TensorId x, TensorId delta, ListBuilder* b) {
  const LayerSpec& spec = b->model.config.layers[layer];
  const LayerWeights& w = b->model.layers[layer];
  const TensorId normed = b->add_norm("attn_in", layer, x, delta, w.attention_norm);
  RecurrentPart part(layer, normed, b);
  const TensorId made = spec.attention == AttentionKind::kShortConv    ? part.add_short_conv()
                        : spec.attention == AttentionKind::kGatedDelta ? part.add_gated_delta()
                                                                       : part.add_scan();
  const TensorId out = b->tensor("attn_out", layer, b->model.config.width, DType::kF32);
  b->add_matmul(made, w.recurrent.out, out);
  return b->add_post_norm("attn_post", layer, out, w.attention_post_norm);
}

}  // namespace llmrt
