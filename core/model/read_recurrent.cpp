// Which layers of a file are recurrent, and their sizes.
#include <fmt/format.h>

#include <algorithm>

#include "core/model/config_reader.h"

namespace llmrt {

namespace {

// Numbers of a token that an op of a recurrent layer passes: far above any model's, and records stay below 2^32.
constexpr uint64_t kStateWidthMax = 1u << 20;

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

}  // namespace

void read_recurrent(ConfigReader& reader, const Architecture& architecture, ModelConfig* config) {
  if (!architecture.recurrent) return;
  const RecurrentSpec spec = read_short_conv(reader, *config);
  if (!reader.status()) return;
  for (LayerSpec& layer : config->layers) {
    if (layer.num_kv_heads > 0) continue;
    reader.expect(layer.attention == AttentionKind::kFull, ErrorCode::kCorruptFile,
                  fmt::format("bad metadata: {}attention.sliding_window_pattern: expected no window in a layer "
                              "without KV heads, found one",
                              reader.prefix()));
    LayerSpec recurrent;
    recurrent.attention = *architecture.recurrent;
    recurrent.recurrent = spec;
    recurrent.activation = layer.activation;
    recurrent.ffn_post_norm = layer.ffn_post_norm;
    layer = recurrent;
  }
}

}  // namespace llmrt
