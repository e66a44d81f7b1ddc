// The layers of a file: windows, head counts and widths, each one number for all layers or an array with one a layer.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/model/config_reader.h"

namespace llmrt {

namespace {

constexpr uint32_t kLayersMax = 1024;
constexpr uint32_t kFfnWidthMax = 1u << 22;
constexpr uint32_t kHeadsMax = 4096;
constexpr uint32_t kHeadDimMax = 1024;
constexpr const char* kFfnWidth = "feed_forward_length";

// Which layers have a window, and how large it is.
void read_windows(ConfigReader& reader, const Architecture& architecture, ModelConfig* config) {
  constexpr const char* kWindow = "attention.sliding_window";
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  const uint32_t num_layers = config->num_layers();
  const uint32_t window = reader.integer(kWindow, 0, kContextMax, 0);
  const MetadataValue* pattern = reader.find(kPattern);
  std::vector<bool> windows(num_layers, false);
  if (pattern != nullptr && pattern->is_array) {
    windows = reader.booleans(kPattern, num_layers);
  } else if (pattern != nullptr || (window > 0 && architecture.windows)) {
    const WindowPattern rule =
        pattern != nullptr ? WindowPattern{reader.integer(kPattern, 0, kLayersMax)} : *architecture.windows;
    for (uint32_t layer = 0; layer < num_layers; ++layer) windows[layer] = rule.has_window(layer);
  } else {
    // Which layers have it differs by model, and this file does not say so.
    reader.expect(window == 0 || window >= config->context_max, ErrorCode::kUnsupported,
                  fmt::format("unsupported model: {}{}: expected none below the context of {}, found {}",
                              reader.prefix(), kWindow, config->context_max, window));
  }
  for (uint32_t layer = 0; layer < num_layers; ++layer) {
    if (!windows[layer]) continue;
    reader.expect(window > 0, ErrorCode::kCorruptFile,
                  fmt::format("missing metadata: {}{}: expected the window of layer {}, found nothing", reader.prefix(),
                              kWindow, layer));
    config->layers[layer].attention = AttentionKind::kWindow;
    config->layers[layer].window = window;
  }
}

// Layers that are a feed-forward part alone, and those that have none.
void read_lone_parts(ConfigReader& reader, const Architecture& architecture, ModelConfig* config) {
  if (!architecture.has_lone_parts) return;
  const std::vector<uint32_t> widths = reader.integers(kFfnWidth, 0, kFfnWidthMax, config->num_layers());
  for (uint32_t layer = 0; layer < config->num_layers(); ++layer) {
    LayerSpec& spec = config->layers[layer];
    if (widths[layer] == 0)
      spec.feed_forward = FeedForwardKind::kNone;
    else
      spec.attention = AttentionKind::kNone;
  }
}

// Layers without KV heads are those that are recurrent, where the architecture has such.
void read_head_counts(ConfigReader& reader, const Architecture& architecture, ModelConfig* config) {
  constexpr const char* kHeads = "attention.head_count";
  constexpr const char* kKvHeads = "attention.head_count_kv";
  const std::vector<uint32_t> heads = reader.integers(kHeads, 0, kHeadsMax, config->num_layers());
  const bool has_kv_heads = reader.find(kKvHeads) != nullptr;
  const std::vector<uint32_t> kv_heads =
      has_kv_heads ? reader.integers(kKvHeads, 0, kHeadsMax, config->num_layers()) : heads;
  const std::vector<bool> recurrent = read_recurrent_layers(reader, architecture, kv_heads);
  for (uint32_t layer = 0; layer < config->num_layers(); ++layer) {
    LayerSpec& spec = config->layers[layer];
    if (recurrent[layer] || spec.attention == AttentionKind::kNone) {
      spec.num_heads = spec.num_kv_heads = 0;
      continue;
    }
    for (const auto& [name, count] : {std::pair(kHeads, heads[layer]), std::pair(kKvHeads, kv_heads[layer])})
      reader.expect(count > 0, ErrorCode::kUnsupported,
                    fmt::format("unsupported model: {}{}: layer {}: expected attention in every layer, found no heads",
                                reader.prefix(), name, layer));
    spec.num_heads = std::max(heads[layer], 1u);
    spec.num_kv_heads = std::max(kv_heads[layer], 1u);
    reader.expect(spec.num_heads % spec.num_kv_heads == 0, ErrorCode::kCorruptFile,
                  fmt::format("bad metadata: {}{}: expected a multiple of head_count_kv {}, found {}", reader.prefix(),
                              kHeads, spec.num_kv_heads, spec.num_heads));
  }
}

// Layers with a window may have keys of their own: those that end in _swa.
struct HeadKeys {
  const char *k_dim, *v_dim, *rope_dim;
};
constexpr HeadKeys kHeadKeys = {"attention.key_length", "attention.value_length", "rope.dimension_count"};
constexpr HeadKeys kWindowHeadKeys = {"attention.key_length_swa", "attention.value_length_swa",
                                      "rope.dimension_count_swa"};

// Numbers of a head, and how many of them turn. rope_default: 0 = all.
struct HeadDims {
  uint32_t head = 0, rope = 0;
};
HeadDims read_head_dims(ConfigReader& reader, const HeadKeys& keys, uint32_t head_default, uint32_t rope_default) {
  HeadDims dims;
  dims.head = reader.integer(keys.k_dim, 2, kHeadDimMax, head_default);
  const uint32_t value_dim = reader.integer(keys.v_dim, 1, kHeadDimMax, dims.head);
  reader.expect(value_dim == dims.head, ErrorCode::kUnsupported,
                fmt::format("unsupported model: {}{}: expected key_length {}, found {}", reader.prefix(), keys.v_dim,
                            dims.head, value_dim));
  reader.expect(dims.head >= 2 && dims.head <= kHeadDimMax && dims.head % 2 == 0, ErrorCode::kUnsupported,
                fmt::format("unsupported model: {}{}: expected an even number in [2, {}], found {}", reader.prefix(),
                            keys.k_dim, kHeadDimMax, dims.head));
  dims.rope = reader.integer(keys.rope_dim, 2, kHeadDimMax, rope_default > 0 ? rope_default : dims.head);
  reader.expect(dims.rope % 2 == 0 && dims.rope <= dims.head, ErrorCode::kCorruptFile,
                fmt::format("bad metadata: {}{}: expected an even number up to {}, found {}", reader.prefix(),
                            keys.rope_dim, dims.head, dims.rope));
  return dims;
}

// Which pairs of a head's numbers turn together: the architecture's, unless the source says that its rows are stored in
// another order. GGUF's converter permutes q and k of some architectures, safetensors have them as they were trained.
RopePairing read_pairing(ConfigReader& reader, RopePairing usual) {
  constexpr const char* kKey = "llmrt.rope_pairing";
  const MetadataValue* value = reader.metadata().find(kKey);
  if (value == nullptr) return usual;
  const auto name = reader.metadata().string(kKey);
  if (name && *name == "halves") return RopePairing::kHalves;
  reader.expect(name && *name == "interleaved", ErrorCode::kUnsupported,
                fmt::format("unsupported model: {}: expected halves or interleaved, found {}", kKey, describe(*value)));
  return RopePairing::kInterleaved;
}

// What scores are multiplied by where the file does not say.
float default_scale(const Architecture& architecture, const ModelConfig& config, const LayerSpec& layer) {
  const bool by_width = config.num_layers() == architecture.layers_with_width_scale;
  return static_cast<float>(1 / std::sqrt(by_width ? double(config.width) / layer.num_heads : double(layer.head_dim)));
}

void read_dims(ConfigReader& reader, const Architecture& architecture, ModelConfig* config) {
  const auto attends = std::ranges::find_if(config->layers, [](const LayerSpec& layer) { return layer.num_heads > 0; });
  reader.expect(
      attends != config->layers.end(), ErrorCode::kUnsupported,
      fmt::format("unsupported model: {}attention.head_count_kv: expected attention in some layer, found it in "
                  "none",
                  reader.prefix()));
  if (!reader.status()) return;
  const HeadDims full = read_head_dims(reader, kHeadKeys, config->width / attends->num_heads, 0);
  HeadDims window = full;
  if (std::ranges::count(config->layers, AttentionKind::kWindow, &LayerSpec::attention) > 0)
    window = read_head_dims(reader, kWindowHeadKeys, full.head,
                            reader.find(kWindowHeadKeys.k_dim) == nullptr ? full.rope : 0);
  const float scale = reader.number("attention.scale", 1e-6, 1e6, 0.0);
  const auto finetuned = reader.metadata().boolean(reader.prefix() + "rope.scaling.finetuned", true);
  const bool turns = !architecture.finetuned_is_rope || !finetuned || *finetuned;
  const float soft_cap = reader.number("attn_logit_softcapping", 0, 1e6, 0.0);
  for (uint32_t i = 0; i < config->num_layers(); ++i) {
    LayerSpec& layer = config->layers[i];
    if (layer.num_heads == 0) continue;
    const HeadDims& dims = layer.attention == AttentionKind::kWindow ? window : full;
    layer.head_dim = dims.head;
    const bool is_turned = turns && (!architecture.turned || architecture.turned->has_window(i));
    layer.rope.dim = is_turned ? dims.rope : 0;
    layer.soft_cap = soft_cap;
    layer.attention_scale = scale > 0 ? scale : default_scale(architecture, *config, layer);
  }
}

// The last layers may have no keys and values of their own: each reads those of the last layer before them that is like
// it.
void read_shared_caches(ConfigReader& reader, ModelConfig* config) {
  constexpr const char* kShared = "attention.shared_kv_layers";
  const uint32_t num_layers = config->num_layers();
  const uint32_t first = num_layers - reader.integer(kShared, 0, num_layers - 1, 0);
  for (uint32_t layer = first; layer < num_layers; ++layer) {
    LayerSpec& spec = config->layers[layer];
    int32_t owner = static_cast<int32_t>(first) - 1;
    const auto is_like = [&](const LayerSpec& other) {
      return other.attention == spec.attention && other.window == spec.window &&
             other.num_kv_heads == spec.num_kv_heads && other.head_dim == spec.head_dim;
    };
    while (owner >= 0 && !is_like(config->layers[static_cast<size_t>(owner)])) --owner;
    reader.expect(owner >= 0, ErrorCode::kCorruptFile,
                  fmt::format("bad metadata: {}{}: expected a layer before {} with the window and heads of layer {}, "
                              "found none",
                              reader.prefix(), kShared, first, layer));
    spec.cache_of = owner;
  }
}

// expert_gating_func in GGUF's numbers.
ExpertScoring read_scoring(ConfigReader& reader, ExpertScoring usual, bool* is_there) {
  constexpr ExpertScoring kScorings[] = {ExpertScoring::kSoftmax, ExpertScoring::kSigmoid,
                                         ExpertScoring::kSoftmaxOfChosen, ExpertScoring::kSqrtSoftplus};
  const uint32_t scoring = reader.integer("expert_gating_func", 0, std::size(kScorings), 0);
  *is_there = scoring > 0;
  return scoring == 0 ? usual : kScorings[scoring - 1];
}

ExpertSpec read_experts(ConfigReader& reader, const Architecture& architecture) {
  ExpertSpec experts;
  const uint32_t least = architecture.experts == Presence::kAlways ? 1 : 0;
  experts.count =
      reader.integer("expert_count", least, kExpertsMax, least == 0 ? std::optional<uint64_t>(0) : std::nullopt);
  if (experts.count == 0) return experts;
  reader.expect(architecture.experts != Presence::kNever, ErrorCode::kUnsupported,
                fmt::format("unsupported model: {}expert_count: expected no experts in this architecture, found {}",
                            reader.prefix(), experts.count));
  experts.used = reader.integer("expert_used_count", 1, std::min(experts.count, kExpertsUsedMax));
  experts.has_bias = architecture.has_expert_bias;
  RoutingRule& rule = experts.rule;
  rule.scoring = read_scoring(reader, architecture.expert_scoring, &experts.has_scoring);
  const auto renormalise =
      reader.metadata().boolean(reader.prefix() + "expert_weights_norm", architecture.renormalises_experts);
  reader.expect(renormalise.ok(), ErrorCode::kCorruptFile,
                fmt::format("bad metadata: {}expert_weights_norm: expected a boolean", reader.prefix()));
  rule.renormalise = renormalise && *renormalise;
  const float scale = reader.number("expert_weights_scale", 0, 1e6, 0.0);
  rule.scale = scale > 0 ? scale : 1;
  rule.groups = std::max(1u, reader.integer("expert_group_count", 0, experts.count, 1));
  rule.groups_used = rule.groups == 1 ? 1 : reader.integer("expert_group_used_count", 1, rule.groups);
  reader.expect(experts.count % rule.groups == 0 && experts.used <= experts.count / rule.groups * rule.groups_used,
                ErrorCode::kCorruptFile,
                fmt::format("bad metadata: {}expert_group_count: expected {} experts in equal groups that leave {} to "
                            "choose, found {} groups of which {} are used",
                            reader.prefix(), experts.count, experts.used, rule.groups, rule.groups_used));
  experts.latent_width = reader.integer("moe_latent_size", 0, kFfnWidthMax, 0);
  rule.num_shared = architecture.shared_experts == SharedExperts::kGated ? 1 : 0;
  const uint32_t shared = reader.integer("expert_shared_count", 0, kExpertsMax, rule.num_shared);
  reader.expect(shared == rule.num_shared || architecture.shared_experts == SharedExperts::kPlain,
                ErrorCode::kUnsupported,
                fmt::format("unsupported model: {}expert_shared_count: expected {}, found {}", reader.prefix(),
                            rule.num_shared, shared));
  return experts;
}

// How wide the expert is that every token goes to: a file may say how many of the others it is as wide as.
void read_shared_width(ConfigReader& reader, const Architecture& architecture, LayerSpec* layer) {
  constexpr const char* kKey = "expert_shared_feed_forward_length";
  if (architecture.shared_experts == SharedExperts::kNone) return;
  if (architecture.shared_experts == SharedExperts::kPlain) {
    const uint64_t usual = uint64_t{layer->ffn_width} * reader.integer("expert_shared_count", 0, kExpertsMax, 0);
    layer->experts.shared_width = reader.integer(kKey, 0, kFfnWidthMax, std::min<uint64_t>(usual, kFfnWidthMax));
    return;
  }
  const uint32_t shared = reader.integer(kKey, 1, kFfnWidthMax, layer->ffn_width);
  reader.expect(shared == layer->ffn_width, ErrorCode::kUnsupported,
                fmt::format("unsupported model: {}{}: expected {} as an expert's, found {}", reader.prefix(), kKey,
                            layer->ffn_width, shared));
}

void read_feed_forward(ConfigReader& reader, const Architecture& architecture, ModelConfig* config) {
  constexpr const char* kExpertWidth = "expert_feed_forward_length";
  const uint32_t num_layers = config->num_layers();
  const ExpertSpec experts = read_experts(reader, architecture);
  const uint32_t num_dense =
      experts.count == 0 ? num_layers : reader.integer("leading_dense_block_count", 0, num_layers, 0);
  // A file whose layers all have experts may say their width by either key.
  const bool has_expert_width = experts.count > 0 && reader.find(kExpertWidth) != nullptr;
  const uint32_t least = architecture.has_lone_parts ? 0 : 1;
  const std::vector<uint32_t> expert_widths =
      has_expert_width ? reader.integers(kExpertWidth, least, kFfnWidthMax, num_layers) : std::vector<uint32_t>();
  const std::vector<uint32_t> widths =
      has_expert_width && num_dense == 0 ? expert_widths : reader.integers(kFfnWidth, least, kFfnWidthMax, num_layers);
  for (uint32_t layer = 0; layer < num_layers; ++layer) {
    LayerSpec& spec = config->layers[layer];
    if (spec.feed_forward == FeedForwardKind::kNone) continue;
    reader.expect(
        widths[layer] > 0, ErrorCode::kCorruptFile,
        fmt::format("bad metadata: {}{}: layer {}: expected a width, found 0", reader.prefix(), kExpertWidth, layer));
    spec.ffn_width = layer >= num_dense && has_expert_width ? expert_widths[layer] : widths[layer];
    if (layer < num_dense) continue;
    spec.feed_forward = FeedForwardKind::kExperts;
    spec.experts = experts;
    read_shared_width(reader, architecture, &spec);
  }
}

// How many layers there are. GGUF's block_count has those that draft among them, the last ones; folders of Hugging Face
// have them behind the others.
uint32_t read_num_layers(ConfigReader& reader, ModelConfig* config) {
  const uint32_t count = reader.integer("block_count", 1, kLayersMax);
  const uint32_t counted = reader.integer("nextn_predict_layers", 0, count - 1, 0);
  const auto behind = reader.metadata().integer("llmrt.draft_layers", 0, kLayersMax, 0);
  reader.expect(behind.ok(), ErrorCode::kCorruptFile, behind ? std::string() : behind.error().message);
  config->num_draft_layers = counted + (behind ? static_cast<uint32_t>(*behind) : 0);
  reader.set_draft_layers(config->num_draft_layers);
  return count - counted;
}

}  // namespace

void read_layers(ConfigReader& reader, const Architecture& architecture, ModelConfig* config) {
  LayerSpec spec;
  spec.qk_norm = architecture.qk_norm;
  spec.joined_qk_norm = architecture.joined_qk_norm;
  spec.v_norm = architecture.v_norm;
  spec.sinks = architecture.sinks;
  spec.output_gate = architecture.output_gate;
  spec.activation = architecture.activation;
  spec.rope.pairing = read_pairing(reader, architecture.rope_pairing);
  spec.attention_post_norm = spec.ffn_post_norm = architecture.post_norms;
  if (architecture.is_latent) spec.attention = AttentionKind::kLatent;
  config->layers.assign(read_num_layers(reader, config), spec);
  read_windows(reader, architecture, config);
  read_lone_parts(reader, architecture, config);
  read_head_counts(reader, architecture, config);
  read_recurrent(reader, architecture, config);
  if (!reader.status()) return;
  if (architecture.is_latent)
    read_latent(reader, config);
  else
    read_dims(reader, architecture, config);
  read_shared_caches(reader, config);
  read_feed_forward(reader, architecture, config);
  assign_cache_groups(config->layers);
}

}  // namespace llmrt
