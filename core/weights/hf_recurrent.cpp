#include "core/weights/hf_recurrent.h"

#include <algorithm>
#include <vector>

namespace llmrt {
namespace {

constexpr int64_t kRecurrentLayersMax = 1024, kStateNumbersMax = 1 << 20;

// Keys of the released models that say how they were initialised, or repeat others, stand among them.
constexpr std::string_view kShortConvKeys[] = {"norm_eps",
                                               "block_norm_eps",
                                               "conv_bias",
                                               "conv_L_cache",
                                               "conv_dim",
                                               "conv_dim_out",
                                               "conv_use_xavier_init",
                                               "block_dim",
                                               "block_ff_dim",
                                               "block_multiple_of",
                                               "block_ffn_dim_multiplier",
                                               "block_auto_adjust_ff_dim",
                                               "block_mlp_init_scale",
                                               "block_out_init_scale",
                                               "block_use_swiglu",
                                               "block_use_xavier_init",
                                               "full_attn_idxs",
                                               "num_heads",
                                               "theta",
                                               "tie_embedding",
                                               "use_pos_enc",
                                               "num_dense_layers",
                                               "use_expert_bias",
                                               "routed_scaling_factor"};

constexpr std::string_view kGatedDeltaKeys[] = {
    "linear_conv_kernel_dim", "linear_key_head_dim", "linear_value_head_dim", "linear_num_key_heads",
    "linear_num_value_heads", "full_attention_interval", "attn_output_gate", "shared_expert_intermediate_size",
    // Layers that draft are counted by their tensors, and states are f32 here.
    "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mamba_ssm_dtype"};

constexpr std::string_view kScanKeys[] = {
    "embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier", "shared_intermediate_size",
    "num_local_experts", "position_embedding_type", "layers_block_type", "mamba_n_heads", "mamba_n_groups",
    "mamba_d_state", "mamba_d_head", "mamba_d_conv", "mamba_expand", "mamba_conv_bias", "mamba_proj_bias",
    // How it is computed or trained.
    "mamba_chunk_size", "init_method", "normalization_function", "num_experts_per_tok", "output_router_logits",
    "router_aux_loss_coef"};

constexpr std::string_view kLoneScanKeys[] = {
    "hybrid_override_pattern", "layers_block_type", "attention_head_dim", "ssm_state_size", "n_groups", "conv_kernel",
    "mamba_num_heads", "mamba_head_dim", "mamba_hidden_act", "mamba_proj_bias", "use_conv_bias", "use_bias",
    "mlp_hidden_act", "layer_norm_epsilon", "norm_eps", "n_routed_experts", "n_shared_experts",
    "moe_shared_expert_intermediate_size", "moe_latent_size", "routed_scaling_factor", "n_group", "topk_group",
    // How it is computed, initialised or trained. What limits time steps in transformers is for training.
    "expand", "chunk_size", "time_step_min", "time_step_max", "time_step_floor", "time_step_limit", "time_step_rank",
    "rescale_prenorm_residual", "residual_in_fp32", "num_logits_to_keep", "use_mamba_kernels", "mamba_ssm_cache_dtype",
    "moe_shared_expert_overlap", "auto_map",
    // Layers that draft are counted by their tensors.
    "num_nextn_predict_layers", "mtp_hybrid_override_pattern", "mtp_layers_block_type"};

// Which layers have attention: layer_types with `other` for the rest, or the numbers of full_attn_idxs.
std::vector<bool> read_attention_layers(uint64_t num_layers, std::string_view other, HfReader& reader,
                                        std::string_view own = "full_attention") {
  std::vector<bool> attends(num_layers, true);
  const JsonTree* types = reader.find("layer_types");
  const JsonTree* idxs = types == nullptr ? reader.find("full_attn_idxs") : nullptr;
  if (types != nullptr && (types->items() == nullptr || types->items()->size() != num_layers)) {
    reader.refuse("layer_types", fmt::format("an array of {}, one a layer", num_layers), types->describe());
  } else if (types != nullptr) {
    for (uint64_t layer = 0; layer < num_layers; ++layer) {
      const JsonTree& type = (*types->items())[layer];
      attends[layer] = type.string() != nullptr && *type.string() == own;
      if (!attends[layer] && (type.string() == nullptr || *type.string() != other))
        reader.refuse("layer_types", fmt::format("{} and {}", own, other), type.describe());
    }
  } else if (idxs != nullptr && idxs->items() == nullptr) {
    reader.refuse("full_attn_idxs", "an array of layers", idxs->describe());
  } else if (idxs != nullptr) {
    attends.assign(num_layers, false);
    for (const JsonTree& idx : *idxs->items()) {
      const int64_t* layer = idx.integer();
      if (layer == nullptr || *layer < 0 || static_cast<uint64_t>(*layer) >= num_layers)
        return reader.refuse("full_attn_idxs", fmt::format("layers below {}", num_layers), idx.describe()), attends;
      attends[static_cast<size_t>(*layer)] = true;
    }
  }
  return attends;
}

// `usual`: KV heads of a layer with attention where the file does not say.
void add_kv_heads(uint64_t usual, const std::string& prefix, const std::vector<bool>& attends, HfReader& reader,
                  CanonicalMetadata& metadata) {
  const auto kv_heads = static_cast<uint32_t>(reader.integer("num_key_value_heads", usual));
  std::vector<uint32_t> heads;
  for (const bool has_attention : attends) heads.push_back(has_attention ? kv_heads : 0);
  metadata.add_u32s(prefix + "attention.head_count_kv", heads);
}

// A width that the family's code makes of the one that the file names.
uint64_t adjusted_ffn(const HfFamily& family, HfReader& reader) {
  const uint64_t stated = reader.integer("block_ff_dim", reader.integer("intermediate_size", family.ffn));
  if (!reader.boolean("block_auto_adjust_ff_dim", true)) return stated;
  const double factor = reader.number("block_ffn_dim_multiplier", 1);
  const uint64_t multiple = reader.integer("block_multiple_of", 256);
  if (!(factor > 0 && factor <= 1024))
    return reader.refuse("block_ffn_dim_multiplier", "above 0 and at most 1024", fmt::format("{}", factor)), stated;
  const auto width = static_cast<uint64_t>(factor * static_cast<double>(2 * stated / 3));
  return (width + multiple - 1) / multiple * multiple;
}

void read_lfm2_experts(const std::string& prefix, uint64_t num_layers, HfReader& reader, CanonicalMetadata& metadata) {
  const JsonTree* dense = reader.find("num_dense_layers");
  const bool is_none = dense != nullptr && dense->integer() != nullptr && *dense->integer() == 0;
  metadata.add_u64(prefix + "leading_dense_block_count",
                   is_none ? 0 : reader.integer("num_dense_layers", 2, static_cast<int64_t>(num_layers)));
  metadata.add_u64(prefix + "expert_gating_func", 2);  // sigmoid
  metadata.add_f64(prefix + "expert_weights_scale", reader.number("routed_scaling_factor", 1));
  // Without it selection goes by probabilities alone, as without the tensor.
  reader.boolean("use_expert_bias", true);
}

void read_lfm2(const HfFamily& family, const std::string& prefix, HfReader& reader, CanonicalMetadata& metadata) {
  const uint64_t num_layers = reader.integer("num_hidden_layers", family.layers, kRecurrentLayersMax);
  add_kv_heads(family.kv_heads, prefix, read_attention_layers(num_layers, "conv", reader), reader, metadata);
  metadata.add_u64(prefix + "shortconv.l_cache", reader.integer("conv_L_cache", 3));
  if (family.experts == HfExperts::kNone)
    metadata.add_u64(prefix + "feed_forward_length", adjusted_ffn(family, reader));
  else
    read_lfm2_experts(prefix, num_layers, reader, metadata);
  metadata.add_f64(prefix + "attention.layer_norm_rms_epsilon", reader.number("norm_eps", family.eps));
  metadata.add_f64(prefix + "rope.freq_base", reader.number("theta", reader.number("rope_theta", family.rope_base)));
  if (reader.boolean("conv_bias", false)) reader.refuse("conv_bias", "false", "true");
  for (const char* key : {"block_use_swiglu", "use_pos_enc"})
    if (!reader.boolean(key, true)) reader.refuse(key, "true", "false");
  const uint64_t width = reader.integer("hidden_size", family.width);
  for (const char* key : {"conv_dim", "conv_dim_out", "block_dim"})
    if (const uint64_t other = reader.integer(key, width); other != width)
      reader.refuse(key, fmt::format("{}, as hidden_size", width), fmt::format("{}", other));
}

void read_gated_delta(const HfFamily& family, const std::string& prefix, HfReader& reader,
                      CanonicalMetadata& metadata) {
  const uint64_t num_layers = reader.integer("num_hidden_layers", family.layers, kRecurrentLayersMax);
  std::vector<bool> recurrent = read_attention_layers(num_layers, "linear_attention", reader);
  recurrent.flip();
  if (reader.find("layer_types") == nullptr) {
    const uint64_t interval = reader.integer("full_attention_interval", 4, kRecurrentLayersMax);
    for (uint64_t layer = 0; layer < num_layers; ++layer) recurrent[layer] = (layer + 1) % interval != 0;
  }
  metadata.add_bools(prefix + "attention.recurrent_layers", recurrent);
  const uint64_t value_heads = reader.integer("linear_num_value_heads", 32, kStateNumbersMax);
  metadata.add_u64(prefix + "ssm.conv_kernel", reader.integer("linear_conv_kernel_dim", 4, kStateNumbersMax));
  metadata.add_u64(prefix + "ssm.state_size", reader.integer("linear_key_head_dim", 128, kStateNumbersMax));
  metadata.add_u64(prefix + "ssm.group_count", reader.integer("linear_num_key_heads", 16, kStateNumbersMax));
  metadata.add_u64(prefix + "ssm.time_step_rank", value_heads);
  metadata.add_u64(prefix + "ssm.inner_size",
                   value_heads * reader.integer("linear_value_head_dim", 128, kStateNumbersMax));
  // GGUF's converter puts the V heads of qwen35 in another order.
  metadata.add_string("llmrt.value_head_order", "divided");
  if (!reader.boolean("attn_output_gate", true)) reader.refuse("attn_output_gate", "true", "false");
  if (family.experts != HfExperts::kNone)
    metadata.add_u64(prefix + "expert_shared_feed_forward_length",
                     reader.integer("shared_expert_intermediate_size", family.expert_ffn));
}

void read_granite(const HfFamily& family, const std::string& prefix, HfReader& reader, CanonicalMetadata& metadata) {
  const uint64_t num_layers = reader.integer("num_hidden_layers", family.layers, kRecurrentLayersMax);
  const uint64_t width = reader.integer("hidden_size", family.width, kStateNumbersMax);
  if (const JsonTree* types = reader.find("layer_types"); types == nullptr)
    return reader.refuse("layer_types", "mamba and attention, one a layer", "nothing");
  const std::vector<bool> attends = read_attention_layers(num_layers, "mamba", reader, "attention");
  add_kv_heads(reader.integer("num_attention_heads", family.heads), prefix, attends, reader, metadata);
  const uint64_t mamba_heads = reader.integer("mamba_n_heads", 128, kStateNumbersMax);
  const uint64_t inner = width * reader.integer("mamba_expand", 2, 64);
  const JsonTree* dim = reader.find("mamba_d_head");
  if (dim != nullptr && dim->string() == nullptr)
    if (const uint64_t own = reader.integer("mamba_d_head", 1, kStateNumbersMax); own * mamba_heads != inner)
      reader.refuse("mamba_d_head",
                    fmt::format("{}, of {} numbers in {} heads", inner / mamba_heads, inner, mamba_heads),
                    fmt::format("{}", own));
  metadata.add_u64(prefix + "ssm.inner_size", inner);
  metadata.add_u64(prefix + "ssm.time_step_rank", mamba_heads);
  metadata.add_u64(prefix + "ssm.conv_kernel", reader.integer("mamba_d_conv", 4, kStateNumbersMax));
  metadata.add_u64(prefix + "ssm.state_size", reader.integer("mamba_d_state", 256, kStateNumbersMax));
  // transformers norms all groups together, GGUF's readers each alone.
  const uint64_t groups = reader.integer("mamba_n_groups", 1);
  if (groups != 1) reader.refuse("mamba_n_groups", "1", fmt::format("{}", groups));
  metadata.add_u64(prefix + "ssm.group_count", groups);
  if (!reader.boolean("mamba_conv_bias", true)) reader.refuse("mamba_conv_bias", "true", "false");
  if (reader.boolean("mamba_proj_bias", false)) reader.refuse("mamba_proj_bias", "false", "true");
  const std::string position = reader.string("position_embedding_type", "nope");
  if (position != "nope" && position != "rope")
    reader.refuse("position_embedding_type", "nope or rope", "\"" + printable(position) + "\"");
  metadata.add_bool(prefix + "rope.scaling.finetuned", position == "rope");
  // Without experts the part that every token passes is the only one.
  const uint64_t shared = reader.integer("shared_intermediate_size", family.ffn);
  metadata.add_u64(prefix + "expert_shared_feed_forward_length", shared);
  metadata.add_u64(prefix + "feed_forward_length", shared);
  constexpr std::pair<const char*, const char*> kFactors[] = {{"embedding_multiplier", "embedding_scale"},
                                                              {"residual_multiplier", "residual_scale"},
                                                              {"attention_multiplier", "attention.scale"},
                                                              {"logits_scaling", "logit_scale"}};
  for (const auto& [name, key] : kFactors) {
    const double factor = reader.number(name, 1);
    if (!(factor > 0)) reader.refuse(name, "above 0", fmt::format("{}", factor));
    metadata.add_f64(prefix + key, factor);
  }
}

// What the layers of a nemotron_h are.
enum class LonePart : uint8_t { kScan, kAttention, kDense, kExperts };

LonePart lone_part_of(std::string_view name, HfReader& reader, std::string_view key) {
  constexpr std::pair<std::string_view, LonePart> kParts[] = {
      {"M", LonePart::kScan},      {"mamba", LonePart::kScan},          {"linear_attention", LonePart::kScan},
      {"*", LonePart::kAttention}, {"attention", LonePart::kAttention}, {"full_attention", LonePart::kAttention},
      {"-", LonePart::kDense},     {"mlp", LonePart::kDense},           {"E", LonePart::kExperts},
      {"moe", LonePart::kExperts}};
  for (const auto& [known, part] : kParts)
    if (known == name) return part;
  reader.refuse(key, "layers of mamba, attention, mlp and moe", "\"" + printable(name) + "\"");
  return LonePart::kScan;
}

std::vector<LonePart> read_lone_parts(HfReader& reader) {
  const char* key = "hybrid_override_pattern";
  std::vector<LonePart> parts;
  if (const JsonTree* pattern = reader.find(key); pattern != nullptr && pattern->string() != nullptr) {
    for (const char& part : *pattern->string()) parts.push_back(lone_part_of({&part, 1}, reader, key));
  } else {
    key = reader.find("layers_block_type") != nullptr ? "layers_block_type" : "layer_types";
    const JsonTree* types = reader.find(key);
    if (types == nullptr || types->items() == nullptr)
      return reader.refuse("hybrid_override_pattern", "what each layer is", "nothing"), parts;
    for (const JsonTree& type : *types->items())
      parts.push_back(lone_part_of(type.string() == nullptr ? type.describe() : *type.string(), reader, key));
  }
  if (parts.empty() || parts.size() > kRecurrentLayersMax)
    reader.refuse(key, fmt::format("1 to {} layers", kRecurrentLayersMax), fmt::format("{}", parts.size()));
  if (const uint64_t stated = reader.integer("num_hidden_layers", std::max<size_t>(parts.size(), 1));
      stated != parts.size())
    reader.refuse("num_hidden_layers", fmt::format("{}, as in {}", parts.size(), key), fmt::format("{}", stated));
  return parts;
}

void read_nemotron_experts(const std::string& prefix, HfReader& reader, CanonicalMetadata& metadata) {
  metadata.add_u64(prefix + "expert_gating_func", 2);  // sigmoid
  metadata.add_f64(prefix + "expert_weights_scale", reader.number("routed_scaling_factor", 1));
  const uint64_t groups = reader.integer("n_group", 1);
  metadata.add_u64(prefix + "expert_group_count", groups);
  metadata.add_u64(prefix + "expert_group_used_count", reader.integer("topk_group", 1));
  if (const uint64_t shared = reader.integer("n_shared_experts", 1); shared != 1)
    reader.refuse("n_shared_experts", "1", fmt::format("{}", shared));
  metadata.add_u64(prefix + "expert_shared_feed_forward_length",
                   reader.integer("moe_shared_expert_intermediate_size", 7688));
  if (reader.find("moe_latent_size") != nullptr)
    metadata.add_u64(prefix + "moe_latent_size", reader.integer("moe_latent_size"));
}

void read_nemotron(const HfFamily& family, const std::string& prefix, HfReader& reader, CanonicalMetadata& metadata) {
  const std::vector<LonePart> parts = read_lone_parts(reader);
  const bool has_experts = std::ranges::count(parts, LonePart::kExperts) > 0;
  if (has_experts && std::ranges::count(parts, LonePart::kDense) > 0)
    reader.refuse("hybrid_override_pattern", "layers with experts or dense ones", "both");
  const auto kv_heads = static_cast<uint32_t>(reader.integer("num_key_value_heads", family.kv_heads));
  const auto width = static_cast<uint32_t>(has_experts ? reader.integer("moe_intermediate_size", family.expert_ffn)
                                                       : reader.integer("intermediate_size", family.ffn));
  std::vector<uint32_t> heads, widths;
  for (const LonePart part : parts) {
    heads.push_back(part == LonePart::kAttention ? kv_heads : 0);
    widths.push_back(part == LonePart::kDense || part == LonePart::kExperts ? width : 0);
  }
  metadata.add_u32s(prefix + "attention.head_count_kv", heads);
  metadata.add_u32s(prefix + "feed_forward_length", widths);
  if (has_experts) read_nemotron_experts(prefix, reader, metadata);
  const uint64_t head_dim = reader.integer("head_dim", reader.integer("attention_head_dim", family.head_dim));
  metadata.add_u64(prefix + "attention.key_length", head_dim);
  metadata.add_u64(prefix + "attention.value_length", head_dim);
  const double eps = reader.number("layer_norm_epsilon", family.eps);
  metadata.add_f64(prefix + "attention.layer_norm_rms_epsilon", eps);
  for (const char* key : {"norm_eps", "rms_norm_eps"})
    if (const double other = reader.number(key, eps); other != eps)
      reader.refuse(key, fmt::format("{}, as layer_norm_epsilon", eps), fmt::format("{}", other));
  const uint64_t scan_heads = reader.integer("mamba_num_heads", 128, kStateNumbersMax);
  metadata.add_u64(prefix + "ssm.time_step_rank", scan_heads);
  metadata.add_u64(prefix + "ssm.inner_size", scan_heads * reader.integer("mamba_head_dim", 64, kStateNumbersMax));
  metadata.add_u64(prefix + "ssm.conv_kernel", reader.integer("conv_kernel", 4, kStateNumbersMax));
  metadata.add_u64(prefix + "ssm.state_size", reader.integer("ssm_state_size", 128, kStateNumbersMax));
  metadata.add_u64(prefix + "ssm.group_count", reader.integer("n_groups", 8, kStateNumbersMax));
  if (!reader.boolean("use_conv_bias", true)) reader.refuse("use_conv_bias", "true", "false");
  for (const char* key : {"use_bias", "mamba_proj_bias"})
    if (reader.boolean(key, false)) reader.refuse(key, "false", "true");
  if (const std::string act = reader.string("mamba_hidden_act", "silu"); act != "silu")
    reader.refuse("mamba_hidden_act", "silu", "\"" + printable(act) + "\"");
}

}  // namespace

uint64_t read_hf_num_layers(const HfFamily& family, HfReader& reader) {
  if (family.recurrent == HfRecurrent::kLoneScan) return read_lone_parts(reader).size();
  return reader.integer("num_hidden_layers", family.layers, kRecurrentLayersMax);
}

bool has_hf_expert_layers(const HfFamily& family, HfReader& reader) {
  return family.recurrent == HfRecurrent::kLoneScan &&
         std::ranges::count(read_lone_parts(reader), LonePart::kExperts) > 0;
}

std::span<const std::string_view> hf_recurrent_keys(HfRecurrent kind) {
  if (kind == HfRecurrent::kNone) return {};
  if (kind == HfRecurrent::kGatedDelta) return kGatedDeltaKeys;
  if (kind == HfRecurrent::kScan) return kScanKeys;
  if (kind == HfRecurrent::kLoneScan) return kLoneScanKeys;
  return kShortConvKeys;
}

void read_hf_recurrent(const HfFamily& family, const std::string& prefix, HfReader& reader,
                       CanonicalMetadata& metadata) {
  if (const JsonTree* window = reader.find("sliding_window"); window != nullptr)
    reader.refuse("sliding_window", "none", window->describe());
  if (family.recurrent == HfRecurrent::kGatedDelta) return read_gated_delta(family, prefix, reader, metadata);
  if (family.recurrent == HfRecurrent::kScan) return read_granite(family, prefix, reader, metadata);
  if (family.recurrent == HfRecurrent::kLoneScan) return read_nemotron(family, prefix, reader, metadata);
  read_lfm2(family, prefix, reader, metadata);
}

}  // namespace llmrt
