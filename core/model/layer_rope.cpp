#include "core/model/layer_rope.h"

#include <algorithm>
#include <cstring>

#include "core/model/rope_frequencies.h"

namespace llmrt {

namespace {

constexpr const char* kWindowBase = "rope.freq_base_swa";

// The factors of rope_freqs.weight, which divide frequencies.
Result<std::vector<float>> read_rope_divisors(TensorSource& tensors, uint32_t rope_dim) {
  auto factors = tensors.take(tensor_names::kRopeFactors, 1, rope_dim / 2, true);
  if (!factors) return factors.error();
  std::vector<float> divisors(rope_dim / 2);
  std::memcpy(divisors.data(), factors->data, factors->bytes());
  for (const float divisor : divisors) {
    if (divisor < 1e-3f || divisor > 1e6f)
      return make_error(ErrorCode::kCorruptFile, "bad tensor: {}: expected factors in [0.001, 1e6], found {}",
                        tensor_names::kRopeFactors, divisor);
  }
  return divisors;
}

// Numbers of a layer. A window base is that of layers with a window; one of the architecture's is never scaled.
Result<RopeParameters> read_layer_rope(const Architecture& architecture, const Metadata& metadata,
                                       const ModelConfig& config, uint32_t rope_dim, bool is_window_base) {
  const std::string prefix = config.architecture + ".";
  if (is_window_base && architecture.window_rope_base > 0) {
    auto base = metadata.number(prefix + kWindowBase, kRopeBaseMin, kRopeBaseMax, architecture.window_rope_base);
    if (!base) return base.error();
    RopeParameters parameters;
    parameters.rope_dim = rope_dim;
    parameters.base = *base;
    return parameters;
  }
  auto parameters = read_rope_parameters(metadata, prefix, rope_dim, config.context_max,
                                         is_window_base ? kWindowBase : "rope.freq_base");
  // Models differ in whether such layers are scaled.
  if (parameters && is_window_base && parameters->scaling != RopeScaling::kNone)
    return make_error(ErrorCode::kUnsupported,
                      "unsupported model: {}{}: expected no RoPE scaling beside it, found some", prefix, kWindowBase);
  return parameters;
}

}  // namespace

Status set_rope(const Architecture& architecture, const Metadata& metadata, TensorSource& tensors,
                ModelConfig* config) {
  const std::string prefix = config->architecture + ".";
  const bool has_window_base = architecture.window_rope_base > 0 || metadata.has(prefix + kWindowBase);
  const bool has_factors = architecture.has_rope_factors && tensors.has(tensor_names::kRopeFactors);
  struct Table {
    uint32_t rope_dim;
    bool has_window_base;
    float magnitude;
  };
  std::vector<Table> tables;
  for (LayerSpec& layer : config->layers) {
    if (layer.rope.dim == 0) continue;
    const bool is_window_base = has_window_base && layer.attention == AttentionKind::kWindow;
    auto table = std::ranges::find_if(tables, [&](const Table& candidate) {
      return candidate.rope_dim == layer.rope.dim && candidate.has_window_base == is_window_base;
    });
    if (table == tables.end()) {
      auto parameters = read_layer_rope(architecture, metadata, *config, layer.rope.dim, is_window_base);
      if (!parameters) return parameters.error();
      if (is_window_base && has_factors)
        return make_error(ErrorCode::kUnsupported,
                          "unsupported model: {}{}: expected no RoPE scaling beside it, found some", prefix,
                          kWindowBase);
      if (has_factors) {
        auto divisors = read_rope_divisors(tensors, layer.rope.dim);
        if (!divisors) return divisors.error();
        parameters->divisors = *std::move(divisors);
      }
      config->rope_freqs.push_back(rope_frequencies(*parameters));
      tables.push_back({layer.rope.dim, is_window_base, static_cast<float>(parameters->magnitude)});
      table = tables.end() - 1;
    }
    layer.rope.freqs_idx = static_cast<uint32_t>(table - tables.begin());
    layer.rope.magnitude = table->magnitude;
  }
  return {};
}

}  // namespace llmrt
