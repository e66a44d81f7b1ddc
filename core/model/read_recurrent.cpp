// Which layers of a file are recurrent, and their sizes.
#include <fmt/format.h>

#include <algorithm>

#include "core/model/config_reader.h"

namespace llmrt {

namespace {

// Numbers of a token that an op of a recurrent layer passes: far above any model's, and records stay below 2^32.
constexpr uint64_t kStateWidthMax = 1u << 20;
constexpr uint32_t kStateHeadsMax = 1024;

RecurrentSpec read_short_conv(ConfigReader& reader, const ModelConfig& config) {
  RecurrentSpec spec;
  spec.conv_width = reader.integer("shortconv.l_cache", 2, kConvWidthMax);
  spec.conv_columns = config.width;
  reader.expect(3 * uint64_t{config.width} <= kStateWidthMax, ErrorCode::kUnsupported,
                fmt::format("unsupported model: {}embedding_length: expected at most {} beside short convolutions, "
                            "found {}",
                            reader.prefix(), kStateWidthMax / 3, config.width));
  return spec;
}

// V heads and K heads of a delta rule may be in another order than the architecture's in GGUF: Hugging Face folders say
// so.
KeyHeadOrder read_head_order(ConfigReader& reader, KeyHeadOrder usual) {
  constexpr const char* kKey = "llmrt.value_head_order";
  const auto name = reader.metadata().string(kKey, usual == KeyHeadOrder::kDivided ? "divided" : "modulo");
  reader.expect(name && (*name == "divided" || *name == "modulo"), ErrorCode::kUnsupported,
                fmt::format("unsupported model: {}: expected divided or modulo", kKey));
  return name && *name == "modulo" ? KeyHeadOrder::kModulo : KeyHeadOrder::kDivided;
}

// How large a head is, where `num_heads` of them make the inner width.
uint32_t read_head_dim(ConfigReader& reader, uint32_t inner, uint32_t num_heads) {
  const uint32_t dim = inner / num_heads;
  reader.expect(
      dim * num_heads == inner && dim % 4 == 0 && dim <= kStateDimMax, ErrorCode::kUnsupported,
      fmt::format("unsupported model: {}ssm.inner_size: expected {} heads of a multiple of 4 numbers up to {}, "
                  "found {}",
                  reader.prefix(), num_heads, kStateDimMax, inner));
  return dim;
}

RecurrentSpec read_heads(ConfigReader& reader) {
  RecurrentSpec spec;
  spec.conv_width = reader.integer("ssm.conv_kernel", 2, kConvWidthMax);
  spec.key_heads = reader.integer("ssm.group_count", 1, kStateHeadsMax);
  spec.value_heads = reader.integer("ssm.time_step_rank", 1, kStateHeadsMax);
  spec.key_dim = reader.integer("ssm.state_size", 4, kStateDimMax);
  const uint32_t inner = reader.integer("ssm.inner_size", 1, kStateWidthMax);
  reader.expect(spec.key_dim % 4 == 0, ErrorCode::kUnsupported,
                fmt::format("unsupported model: {}ssm.state_size: expected a multiple of 4, found {}", reader.prefix(),
                            spec.key_dim));
  reader.expect(spec.value_heads % spec.key_heads == 0, ErrorCode::kCorruptFile,
                fmt::format("bad metadata: {}ssm.time_step_rank: expected a multiple of group_count {}, found {}",
                            reader.prefix(), spec.key_heads, spec.value_heads));
  spec.value_dim = read_head_dim(reader, inner, spec.value_heads);
  return spec;
}

RecurrentSpec read_gated_delta(ConfigReader& reader, const Architecture& architecture) {
  RecurrentSpec spec = read_heads(reader);
  spec.conv_columns = 2 * spec.key_columns() + spec.value_columns();
  spec.order = read_head_order(reader, architecture.value_head_order);
  return spec;
}

RecurrentSpec read_scan(ConfigReader& reader) {
  RecurrentSpec spec = read_heads(reader);
  spec.conv_columns = spec.value_columns() + 2 * spec.key_columns();
  return spec;
}

RecurrentSpec read_spec(ConfigReader& reader, const Architecture& architecture, const ModelConfig& config) {
  if (*architecture.recurrent == AttentionKind::kGatedDelta) return read_gated_delta(reader, architecture);
  if (*architecture.recurrent == AttentionKind::kSelectiveScan) return read_scan(reader);
  return read_short_conv(reader, config);
}

}  // namespace

std::vector<bool> read_recurrent_layers(ConfigReader& reader, const Architecture& architecture,
                                        const std::vector<uint32_t>& kv_heads) {
  constexpr const char* kLayers = "attention.recurrent_layers";
  const auto num_layers = static_cast<uint32_t>(kv_heads.size());
  std::vector<bool> recurrent(num_layers, false);
  if (!architecture.recurrent) return recurrent;
  if (*architecture.recurrent != AttentionKind::kGatedDelta) {
    for (uint32_t layer = 0; layer < num_layers; ++layer) recurrent[layer] = kv_heads[layer] == 0;
    return recurrent;
  }
  if (reader.find(kLayers) != nullptr) return reader.booleans(kLayers, num_layers);
  const uint32_t interval = reader.integer("full_attention_interval", 1, kContextMax, 4);
  for (uint32_t layer = 0; layer < num_layers; ++layer) recurrent[layer] = (layer + 1) % interval != 0;
  return recurrent;
}

void read_recurrent(ConfigReader& reader, const Architecture& architecture, ModelConfig* config) {
  if (!architecture.recurrent) return;
  const RecurrentSpec spec = read_spec(reader, architecture, *config);
  if (!reader.status()) return;
  for (LayerSpec& layer : config->layers) {
    if (layer.num_kv_heads > 0 || layer.attention == AttentionKind::kNone) continue;
    reader.expect(layer.attention == AttentionKind::kFull, ErrorCode::kCorruptFile,
                  fmt::format("bad metadata: {}attention.sliding_window_pattern: expected no window in a layer "
                              "without KV heads, found one",
                              reader.prefix()));
    LayerSpec recurrent;
    recurrent.attention = *architecture.recurrent;
    recurrent.recurrent = spec;
    recurrent.activation = layer.activation;
    recurrent.feed_forward = layer.feed_forward;
    recurrent.ffn_post_norm = layer.ffn_post_norm;
    layer = recurrent;
  }
}

}  // namespace llmrt
