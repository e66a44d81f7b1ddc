#include "core/model/architectures.h"

#include <fmt/format.h>

#include <charconv>

namespace llmrt {

namespace {

// Nemotron-H: a file's name for it says whether it has experts.
constexpr Architecture nemotron(const char* name, Presence experts) {
  return {.name = name,
          .rope_pairing = RopePairing::kHalves,
          .qkv_bias = Presence::kOptional,
          .output_bias = Presence::kOptional,
          .ffn_bias = Presence::kOptional,
          .turned = every_nth_full(1),  // no layer
          .activation = Activation::kSquaredRelu,
          .experts = experts,
          .expert_scoring = ExpertScoring::kSigmoid,
          .renormalises_experts = true,
          .recurrent = AttentionKind::kSelectiveScan,
          .has_lone_parts = true,
          .shared_experts = SharedExperts::kPlain};
}

// A row names what its architecture has; architectures.h says what the rest is.
constexpr Architecture kArchitectures[] = {
    {.name = "llama",
     .rope_pairing = RopePairing::kInterleaved,
     .has_rope_factors = true,
     .qkv_bias = Presence::kOptional,
     .output_bias = Presence::kOptional,
     .ffn_bias = Presence::kOptional,
     .experts = Presence::kOptional,
     .renormalises_experts = true},
    {.name = "qwen2", .rope_pairing = RopePairing::kHalves, .qkv_bias = Presence::kAlways},
    {.name = "qwen3", .rope_pairing = RopePairing::kHalves, .qk_norm = true},
    {.name = "qwen3moe",
     .rope_pairing = RopePairing::kHalves,
     .qk_norm = true,
     .experts = Presence::kAlways,
     .renormalises_experts = true},
    {.name = "gpt-oss",
     .rope_pairing = RopePairing::kHalves,
     .sinks = true,
     .qkv_bias = Presence::kAlways,
     .output_bias = Presence::kAlways,
     .windows = every_nth_full(2),
     .activation = Activation::kClampedSilu,
     .experts = Presence::kAlways,
     .expert_scoring = ExpertScoring::kSoftmaxOfChosen,
     .has_expert_bias = true,
     .ffn_norm_is_post_attention_norm = true},
    {.name = "gemma3",
     .rope_pairing = RopePairing::kHalves,
     .qk_norm = true,
     .post_norms = true,
     .windows = every_nth_full(6),
     .window_rope_base = 10000,
     .activation = Activation::kGelu,
     .scales_embedding = true,
     .layers_with_width_scale = 62,
     .has_images = true},
    {.name = "lfm2",
     .rope_pairing = RopePairing::kHalves,
     .qk_norm = true,
     .recurrent = AttentionKind::kShortConv,
     .final_norm = tensor_names::kFinalNormOfEmbedding},
    {.name = "lfm2moe",
     .rope_pairing = RopePairing::kHalves,
     .qk_norm = true,
     .experts = Presence::kAlways,
     .expert_scoring = ExpertScoring::kSigmoid,
     .renormalises_experts = true,
     .recurrent = AttentionKind::kShortConv,
     .final_norm = tensor_names::kFinalNormOfEmbedding},
    {.name = "granitehybrid",
     .rope_pairing = RopePairing::kInterleaved,
     .divides_logits = true,
     .experts = Presence::kOptional,
     .renormalises_experts = true,
     .recurrent = AttentionKind::kSelectiveScan,
     .finetuned_is_rope = true,
     .shared_experts = SharedExperts::kPlain},
    nemotron("nemotron_h", Presence::kOptional),
    nemotron("nemotron_h_moe", Presence::kAlways),
    {.name = "qwen3next",
     .rope_pairing = RopePairing::kHalves,
     .qk_norm = true,
     .output_gate = true,
     .experts = Presence::kAlways,
     .renormalises_experts = true,
     .ffn_norm_is_post_attention_norm = true,
     .recurrent = AttentionKind::kGatedDelta,
     .shared_experts = SharedExperts::kGated},
    {.name = "qwen35",
     .rope_pairing = RopePairing::kHalves,
     .qk_norm = true,
     .output_gate = true,
     .ffn_norm_is_post_attention_norm = true,
     .recurrent = AttentionKind::kGatedDelta,
     .value_head_order = KeyHeadOrder::kModulo,
     .has_images = true},
    {.name = "qwen35moe",
     .rope_pairing = RopePairing::kHalves,
     .qk_norm = true,
     .output_gate = true,
     .experts = Presence::kAlways,
     .renormalises_experts = true,
     .ffn_norm_is_post_attention_norm = true,
     .recurrent = AttentionKind::kGatedDelta,
     .value_head_order = KeyHeadOrder::kModulo,
     .shared_experts = SharedExperts::kGated,
     .has_images = true},
    {.name = "deepseek2",
     .rope_pairing = RopePairing::kInterleaved,
     .experts = Presence::kOptional,
     .shared_experts = SharedExperts::kPlain,
     .is_latent = true},
};

}  // namespace

std::span<const Architecture> architectures() {
  return kArchitectures;
}

const Architecture* find_architecture(std::string_view name) {
  for (const Architecture& architecture : kArchitectures) {
    if (name == architecture.name) return &architecture;
  }
  return nullptr;
}

std::string tensor_names::of_layer(uint32_t layer, std::string_view name) {
  return fmt::format("blk.{}.{}", layer, name);
}

std::optional<uint32_t> tensor_names::layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return {};
  name.remove_prefix(kPrefix.size());
  uint32_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const auto digits = static_cast<size_t>(end - name.data());
  if (error != std::errc() || digits >= name.size() || name[digits] != '.') return {};
  return layer;
}

bool tensor_names::is_of_images(std::string_view name) {
  return name.starts_with("v.") || name.starts_with("mm.");
}

}  // namespace llmrt
