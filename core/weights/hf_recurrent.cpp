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
    // The part that guesses further tokens is left out, and states are f32 here.
    "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mamba_ssm_dtype"};

constexpr std::string_view kScanKeys[] = {
    "embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier", "shared_intermediate_size",
    "num_local_experts", "position_embedding_type", "layers_block_type", "mamba_n_heads", "mamba_n_groups",
    "mamba_d_state", "mamba_d_head", "mamba_d_conv", "mamba_expand", "mamba_conv_bias", "mamba_proj_bias",
    // How it is computed or trained.
    "mamba_chunk_size", "init_method", "normalization_function", "num_experts_per_tok", "output_router_logits",
    "router_aux_loss_coef"};

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

}  // namespace

std::span<const std::string_view> hf_recurrent_keys(HfRecurrent kind) {
  if (kind == HfRecurrent::kNone) return {};
  if (kind == HfRecurrent::kGatedDelta) return kGatedDeltaKeys;
  if (kind == HfRecurrent::kScan) return kScanKeys;
  return kShortConvKeys;
}

void read_hf_recurrent(const HfFamily& family, const std::string& prefix, HfReader& reader,
                       CanonicalMetadata& metadata) {
  if (const JsonTree* window = reader.find("sliding_window"); window != nullptr)
    reader.refuse("sliding_window", "none", window->describe());
  if (family.recurrent == HfRecurrent::kGatedDelta) return read_gated_delta(family, prefix, reader, metadata);
  if (family.recurrent == HfRecurrent::kScan) return read_granite(family, prefix, reader, metadata);
  read_lfm2(family, prefix, reader, metadata);
}

}  // namespace llmrt
