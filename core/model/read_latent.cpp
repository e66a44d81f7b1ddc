// Sizes of latent attention. Files before key_length_mla have the sizes of a head's own keys and values under the usual
// keys; later ones have those of the cache's rows there.
#include <fmt/format.h>

#include <cmath>

#include "core/model/config_reader.h"

namespace llmrt {

namespace {

constexpr uint32_t kNumbersMax = 1u << 14;
// Of a head's own keys, where they say nothing else: YaRN's factor on cos and sin stands in the scale of scores
// instead.
double yarn_scale(ConfigReader& reader) {
  const auto type = reader.metadata().string(reader.prefix() + "rope.scaling.type", "none");
  if (!type || *type != "yarn") return 1;
  // 0.1 times the multiplier (mscale_all_dim).
  const double multiplier = reader.number("rope.scaling.yarn_log_multiplier", 0, 100, 0.0);
  const double factor = reader.number("rope.scaling.factor", 0, 1e6, 1.0);
  const double scale = factor > 1 ? 1 + multiplier * std::log(factor) : 1;
  return scale * scale;
}

LatentSpec read_sizes(ConfigReader& reader) {
  LatentSpec spec;
  spec.rank = reader.integer("attention.kv_lora_rank", 1, kNumbersMax);
  spec.rope_dim = reader.integer("rope.dimension_count", 2, kNumbersMax);
  spec.query_rank = reader.integer("attention.q_lora_rank", 0, kNumbersMax, 0);
  const bool has_both = reader.find("attention.key_length_mla") != nullptr;
  const char* key_name = has_both ? "attention.key_length_mla" : "attention.key_length";
  const char* value_name = has_both ? "attention.value_length_mla" : "attention.value_length";
  const uint32_t key_dim = reader.integer(key_name, 1, kNumbersMax);
  spec.value_dim = reader.integer(value_name, 1, kNumbersMax);
  reader.expect(key_dim > spec.rope_dim, ErrorCode::kCorruptFile,
                fmt::format("bad metadata: {}{}: expected more than the {} numbers that turn, found {}",
                            reader.prefix(), key_name, spec.rope_dim, key_dim));
  spec.nope_dim = key_dim > spec.rope_dim ? key_dim - spec.rope_dim : 1;
  if (!has_both) return spec;
  for (const auto& [name, expected] :
       {std::pair("attention.key_length", spec.row_dim()), std::pair("attention.value_length", spec.rank)}) {
    const uint32_t found = reader.integer(name, 1, 2 * kNumbersMax, expected);
    reader.expect(found == expected, ErrorCode::kCorruptFile,
                  fmt::format("bad metadata: {}{}: expected {}, as the cache has, found {}", reader.prefix(), name,
                              expected, found));
  }
  return spec;
}

}  // namespace

void read_latent(ConfigReader& reader, ModelConfig* config) {
  const LatentSpec spec = read_sizes(reader);
  const bool fits = spec.rank % 16 == 0 && spec.rope_dim % 16 == 0;
  reader.expect(
      fits && spec.rank <= kLatentRankMax && spec.row_dim() <= kLatentRowMax, ErrorCode::kUnsupported,
      fmt::format("unsupported model: {}attention.kv_lora_rank: expected latents and turned keys in multiples "
                  "of 16, of at most {} and {} together, found {} and {}",
                  reader.prefix(), kLatentRankMax, kLatentRowMax, spec.rank, spec.rope_dim));
  const float scale = reader.number("attention.scale", 1e-6, 1e6, 0.0);
  const double usual = yarn_scale(reader) / std::sqrt(static_cast<double>(spec.key_dim()));
  for (LayerSpec& layer : config->layers) {
    layer.latent = spec;
    layer.num_kv_heads = 1;
    layer.head_dim = spec.row_dim();
    layer.rope.dim = spec.rope_dim;
    layer.attention_scale = scale > 0 ? scale : static_cast<float>(usual);
  }
}

}  // namespace llmrt
