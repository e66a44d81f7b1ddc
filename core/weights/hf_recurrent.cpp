#include "core/weights/hf_recurrent.h"

#include <algorithm>
#include <vector>

namespace llmrt {
namespace {

constexpr int64_t kRecurrentLayersMax = 1024;

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
                                               "use_pos_enc"};

// Which layers have attention: layer_types with `other` for the rest, or the numbers of full_attn_idxs.
std::vector<bool> read_attention_layers(uint64_t num_layers, std::string_view other, HfReader& reader) {
  std::vector<bool> attends(num_layers, true);
  const JsonTree* types = reader.find("layer_types");
  const JsonTree* idxs = types == nullptr ? reader.find("full_attn_idxs") : nullptr;
  if (types != nullptr && (types->items() == nullptr || types->items()->size() != num_layers)) {
    reader.refuse("layer_types", fmt::format("an array of {}, one a layer", num_layers), types->describe());
  } else if (types != nullptr) {
    for (uint64_t layer = 0; layer < num_layers; ++layer) {
      const JsonTree& type = (*types->items())[layer];
      attends[layer] = type.string() != nullptr && *type.string() == "full_attention";
      if (!attends[layer] && (type.string() == nullptr || *type.string() != other))
        reader.refuse("layer_types", fmt::format("full_attention and {}", other), type.describe());
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

void add_kv_heads(const HfFamily& family, const std::string& prefix, const std::vector<bool>& attends, HfReader& reader,
                  CanonicalMetadata& metadata) {
  const auto kv_heads = static_cast<uint32_t>(reader.integer("num_key_value_heads", family.kv_heads));
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

void read_lfm2(const HfFamily& family, const std::string& prefix, HfReader& reader, CanonicalMetadata& metadata) {
  const uint64_t num_layers = reader.integer("num_hidden_layers", family.layers, kRecurrentLayersMax);
  add_kv_heads(family, prefix, read_attention_layers(num_layers, "conv", reader), reader, metadata);
  metadata.add_u64(prefix + "shortconv.l_cache", reader.integer("conv_L_cache", 3));
  metadata.add_u64(prefix + "feed_forward_length", adjusted_ffn(family, reader));
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

}  // namespace

std::span<const std::string_view> hf_recurrent_keys(HfRecurrent kind) {
  if (kind == HfRecurrent::kNone) return {};
  return kShortConvKeys;
}

void read_hf_recurrent(const HfFamily& family, const std::string& prefix, HfReader& reader,
                       CanonicalMetadata& metadata) {
  if (const JsonTree* window = reader.find("sliding_window"); window != nullptr)
    reader.refuse("sliding_window", "none", window->describe());
  read_lfm2(family, prefix, reader, metadata);
}

}  // namespace llmrt
