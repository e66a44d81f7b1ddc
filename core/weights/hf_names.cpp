#include "core/weights/hf_names.h"

#include <charconv>
#include <optional>

namespace llmrt {
namespace {

using Role = HfPlace::Role;

constexpr HfName kModelNames[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"model.embedding_norm.weight", "token_embd_norm.weight"},  // lfm2's final norm
    {"lm_head.weight", "output.weight"},
    {"model.embeddings.weight", "token_embd.weight"},  // nemotron_h's
    {"model.norm_f.weight", "output_norm.weight"},
};
// Behind "mtp.", and in its layers.
constexpr HfName kDraftNames[] = {
    {"fc.weight", "nextn.eh_proj.weight"},
    {"pre_fc_norm_embedding.weight", "nextn.enorm.weight"},
    {"pre_fc_norm_hidden.weight", "nextn.hnorm.weight"},
    {"norm.weight", "nextn.shared_head_norm.weight"},
};
constexpr HfName kDraftLayerNames[] = {
    {"eh_proj.weight", "nextn.eh_proj.weight"},
    {"enorm.weight", "nextn.enorm.weight"},
    {"hnorm.weight", "nextn.hnorm.weight"},
    {"final_layernorm.weight", "nextn.shared_head_norm.weight"},
    {"shared_head.norm.weight", "nextn.shared_head_norm.weight"},
    {"shared_head.head.weight", "nextn.shared_head_head.weight"},
    {"embed_tokens.weight", "nextn.embed_tokens.weight"},
};
constexpr HfName kKvScaleNames[] = {
    {"self_attn.k_scale", "attn_k_cache.scale"},        {"self_attn.v_scale", "attn_v_cache.scale"},
    {"self_attn.attn.k_scale", "attn_k_cache.scale"},   {"self_attn.attn.v_scale", "attn_v_cache.scale"},
    {"self_attn.k_proj.k_scale", "attn_k_cache.scale"}, {"self_attn.v_proj.v_scale", "attn_v_cache.scale"},
};
constexpr std::string_view kFusedNames[] = {
    "gate_up_proj_blocks", "gate_up_proj_scales", "gate_up_proj_bias", "gate_up_proj",
    "down_proj_blocks",    "down_proj_scales",    "down_proj_bias",    "down_proj"};
// Frequencies that old checkpoints carry; they follow from config.json.
constexpr std::string_view kComputedName = "self_attn.rotary_emb.inv_freq";
// Beginnings of the names of parts that read images; the engine leaves out what has such a canonical name.
constexpr HfName kImageNames[] = {
    {"vision_tower.", "v."},           {"model.vision_tower.", "v."},           {"model.visual.", "v."},
    {"multi_modal_projector.", "mm."}, {"model.multi_modal_projector.", "mm."},
};
// Behind a projection's name, where its numbers have scales.
constexpr std::string_view kWeightScales[] = {".weight_scale_inv", ".weight_scale"};
constexpr std::string_view kActivationScales[] = {".input_scale", ".activation_scale"};

// The number at the beginning of `name`, below `count` and followed by a dot, which is taken away with it.
std::optional<uint64_t> take_number(std::string_view* name, uint64_t count) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(name->data(), name->data() + name->size(), number);
  const auto digits = static_cast<size_t>(end - name->data());
  if (error != std::errc() || number >= count || (digits > 1 && name->front() == '0') || digits >= name->size() ||
      (*name)[digits] != '.')
    return {};
  name->remove_prefix(digits + 1);
  return number;
}

bool take_prefix(std::string_view* name, std::string_view prefix) {
  if (prefix.empty() || !name->starts_with(prefix)) return false;
  name->remove_prefix(prefix.size());
  return true;
}

// What is behind "model.layers.N.", and for experts behind their number; .weight_scale and the like have been replaced.
HfPlace layer_place(std::string_view name, const HfConfig& config) {
  const HfFamily& family = *config.family;
  for (const HfName& known : family.layer_names)
    if (name == known.hf) return {Role::kTensor, std::string(known.canonical)};
  for (const HfName& known : family.projection_names)
    for (const std::string_view kind : {".weight", ".bias"})
      if (name.starts_with(known.hf) && name.substr(known.hf.size()) == kind)
        return {Role::kTensor, std::string(known.canonical) + std::string(kind)};
  for (const HfName& known : kKvScaleNames)
    if (name == known.hf) return {Role::kKvScale, std::string(known.canonical)};
  if (family.experts == HfExperts::kFused && take_prefix(&name, "mlp.experts.")) {
    for (const std::string_view known : kFusedNames)
      if (name == known) return {Role::kFused, std::string(name)};
    return {};
  }
  if (!take_prefix(&name, family.experts_prefix)) return {};
  const auto expert = take_number(&name, config.num_experts);
  for (const HfName& known : family.expert_names)
    if (expert && name == known.hf) return {Role::kExpert, std::string(known.canonical), *expert};
  return {};
}

HfPlace tensor_of_draft(uint64_t layer, std::string_view canonical, const HfConfig& config) {
  return {.role = Role::kTensor,
          .canonical = fmt::format("blk.{}.{}", config.num_layers + layer, canonical),
          .draft_layers = layer + 1};
}

// What is in a layer that drafts. An unknown tensor is left out: no text depends on it.
HfPlace draft_layer_place(std::string_view name, uint64_t layer, const HfConfig& config) {
  for (const HfName& known : kDraftLayerNames)
    if (name == known.hf) return tensor_of_draft(layer, known.canonical, config);
  HfPlace found = layer_place(name, config);
  if (found.role != Role::kTensor && found.role != Role::kExpert) return {Role::kIgnored, {}};
  found.canonical = fmt::format("blk.{}.{}", config.num_layers + layer, found.canonical);
  found.draft_layers = layer + 1;
  return found;
}

// What is behind "mtp.", as tensors of the layers behind the others.
HfPlace draft_place(std::string_view name, const HfConfig& config) {
  for (const HfName& known : kDraftNames)
    if (name == known.hf) return tensor_of_draft(0, known.canonical, config);
  const HfPlace unknown{Role::kIgnored, {}};
  if (!take_prefix(&name, "layers.")) return unknown;
  const bool has_parts = config.family->drafts == HfDrafts::kMtpParts;
  const auto number = take_number(&name, (has_parts ? 2 : 1) * kHfDraftLayersMax);
  if (!number) return unknown;
  const uint64_t layer = has_parts ? *number / 2 : *number;
  if (has_parts && *number % 2 == 1 && name == "norm.weight")
    return tensor_of_draft(layer, "post_attention_norm.weight", config);
  return draft_layer_place(name, layer, config);
}

HfPlace model_place(std::string_view name, const HfConfig& config) {
  if (config.family->drafts != HfDrafts::kNone && take_prefix(&name, "mtp.")) return draft_place(name, config);
  for (const HfName& known : kModelNames)
    if (name == known.hf) return {Role::kTensor, std::string(known.canonical)};
  if (!take_prefix(&name, "model.layers.")) return {};
  const auto layer = take_number(&name, config.num_layers + config.num_later);
  if (!layer) return {};
  if (*layer >= config.num_layers) return draft_layer_place(name, *layer - config.num_layers, config);
  if (name == kComputedName) return {Role::kIgnored, {}};
  HfPlace place = layer_place(name, config);
  if (!place.canonical.empty()) place.canonical = fmt::format("blk.{}.{}", *layer, place.canonical);
  return place;
}

// The same name with .weight for a suffix of scales; empty: it has none of these.
std::string weight_name(std::string_view name, std::span<const std::string_view> suffixes) {
  for (const std::string_view suffix : suffixes)
    if (name.ends_with(suffix)) return std::string(name.substr(0, name.size() - suffix.size())) + ".weight";
  return {};
}

}  // namespace

HfPlace place_of(std::string_view name, const HfConfig& config) {
  std::string text;
  if (config.family->recurrent == HfRecurrent::kLoneScan && take_prefix(&name, "backbone.")) {
    text = "model." + std::string(name);
    name = text;
  }
  if (config.family->is_nested) {
    for (const HfName& image : kImageNames)
      if (name.starts_with(image.hf)) return {Role::kImage, std::string(image.canonical) + std::string(name)};
    if (take_prefix(&name, "model.language_model.")) {
      text = "model." + std::string(name);
    } else if (take_prefix(&name, "language_model.")) {
      text = name;
    }
    if (!text.empty()) name = text;
  }
  if (const std::string weight = weight_name(name, kWeightScales); !weight.empty()) {
    HfPlace place = model_place(weight, config);
    place.is_scale = true;
    return place;
  }
  if (const std::string weight = weight_name(name, kActivationScales); !weight.empty()) {
    const bool is_known = model_place(weight, config).role != Role::kUnknown;
    return {is_known ? Role::kIgnored : Role::kUnknown, {}};
  }
  return model_place(name, config);
}

}  // namespace llmrt
