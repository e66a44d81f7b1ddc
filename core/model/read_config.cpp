#include <algorithm>
#include <cmath>

#include "core/model/config_reader.h"
#include "core/model/read_metadata.h"

namespace llmrt {

namespace {

constexpr uint32_t kWidthMax = 1u << 20;
constexpr const char* kRmsEps = "attention.layer_norm_rms_epsilon";

// Keys that change the computation in a way that the decoder does not do, unless at the neutral value.
struct NeutralKey {
  const char* key;
  double neutral;
  const char* meaning;
};
constexpr NeutralKey kNeutralKeys[] = {
    {"attention.clamp_kqv", 0, "clamped q, k and v"},   {"attention.max_alibi_bias", 0, "ALiBi"},
    {"pooling_type", 0, "an embedding model"},          {"use_parallel_residual", 0, "parallel residuals"},
    {"attention.kv_lora_rank", 0, "latent attention"},  {"attention.recurrent_layers", 0, "linear attention"},
    {"full_attention_interval", 0, "linear attention"}, {"ssm.state_size", 0, "recurrent layers"},
    {"shortconv.l_cache", 0, "convolution layers"},
};

// The other keys that may follow "<architecture>.": what is read here or in rope_frequencies.cpp, and what changes
// nothing. A key that is in neither table is refused: it may say that the model computes something else.
constexpr const char* kKnownKeys[] = {
    "vocab_size",
    "context_length",
    "leading_dense_block_count",
    "expert_count",
    "expert_used_count",
    "expert_feed_forward_length",
    "expert_shared_count",
    "expert_shared_feed_forward_length",
    "expert_weights_scale",
    "expert_weights_norm",
    "expert_gating_func",
    "expert_group_count",
    "expert_group_used_count",
    "moe_latent_size",
    "embedding_length",
    "block_count",
    "nextn_predict_layers",
    "feed_forward_length",
    "tensor_data_layout",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.scale",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.key_length_swa",
    "attention.value_length_swa",
    "attention.causal",
    "attention.shared_kv_layers",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "logit_scale",
    "residual_scale",
    "embedding_scale",
    "rope.dimension_count",
    "rope.dimension_count_swa",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.attn_factor",
    "rope.scaling.finetuned",
    "rope.scaling.low_freq_factor",
    "rope.scaling.high_freq_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_log_multiplier",
};

// read_recurrent.cpp reads these, of architectures with recurrent layers.
constexpr const char* kRecurrentKeys[] = {"shortconv.l_cache",
                                          "ssm.conv_kernel",
                                          "ssm.inner_size",
                                          "ssm.state_size",
                                          "ssm.time_step_rank",
                                          "ssm.group_count",
                                          "attention.recurrent_layers",
                                          "full_attention_interval",
                                          "attention.layer_norm_epsilon",  // where there is none for RMS norms
                                          "rope.dimension_sections"};  // of positions in images: in text all are equal

// read_latent.cpp reads these, of architectures with latent attention.
constexpr const char* kLatentKeys[] = {"attention.kv_lora_rank", "attention.q_lora_rank", "attention.key_length_mla",
                                       "attention.value_length_mla", "nextn_predict_layers"};

bool is_latent_key(const Architecture& architecture, std::string_view key) {
  const auto is_key = [key](std::string_view known) { return known == key; };
  return architecture.is_latent && std::any_of(std::begin(kLatentKeys), std::end(kLatentKeys), is_key);
}

bool is_recurrent_key(const Architecture& architecture, std::string_view key) {
  const auto is_key = [key](std::string_view known) { return known == key; };
  return architecture.recurrent && std::any_of(std::begin(kRecurrentKeys), std::end(kRecurrentKeys), is_key);
}

bool is_known_key(const Architecture& architecture, std::string_view key, bool has_experts) {
  if (key.starts_with("expert_") && !has_experts) return true;                                         // without effect
  if (architecture.has_images && (key.starts_with("vision.") || key.starts_with("mm."))) return true;  // left out
  if (is_recurrent_key(architecture, key) || is_latent_key(architecture, key)) return true;
  const auto is_key = [key](std::string_view known) { return known == key; };
  return std::any_of(std::begin(kKnownKeys), std::end(kKnownKeys), is_key) ||
         std::any_of(std::begin(kNeutralKeys), std::end(kNeutralKeys),
                     [&](const NeutralKey& neutral) { return is_key(neutral.key); });
}

void refuse_what_is_not_done(ConfigReader& reader, const Architecture& architecture) {
  const Metadata& metadata = reader.metadata();
  const std::string& prefix = reader.prefix();
  for (const auto& [key, neutral, meaning] : kNeutralKeys) {
    const MetadataValue* value = metadata.find(prefix + key);
    if (value == nullptr || is_recurrent_key(architecture, key) || is_latent_key(architecture, key)) continue;
    const auto as_integer = metadata.integer(prefix + key, 0, UINT32_MAX);
    const auto as_number = metadata.number(prefix + key, -1e30, 1e30);
    const auto as_boolean = metadata.boolean(prefix + key);
    const bool is_neutral = (as_integer && static_cast<double>(*as_integer) == neutral) ||
                            (as_number && *as_number == neutral) || (as_boolean && *as_boolean == (neutral != 0));
    reader.expect(is_neutral, ErrorCode::kUnsupported,
                  fmt::format("unsupported model: {}{}: {}: expected {}, found {}", prefix, key, meaning, neutral,
                              describe(*value)));
  }
  const auto causal = metadata.boolean(prefix + "attention.causal", true);
  reader.expect(causal && *causal, ErrorCode::kUnsupported,
                fmt::format("unsupported model: {}attention.causal: expected true", prefix));
  const bool has_experts = reader.integer("expert_count", 0, kExpertsMax, 0) > 0;
  for (const Metadata::Entry& entry : metadata.entries()) {
    if (!entry.key.starts_with(prefix)) continue;
    reader.expect(is_known_key(architecture, entry.key.substr(prefix.size()), has_experts), ErrorCode::kUnsupported,
                  fmt::format("unsupported model: {}: not a key that this decoder knows, found {}",
                              printable(entry.key), describe(entry.value)));
  }
}

// Factors on embeddings, on what layers add, and on logits; 0 counts as none of them.
void read_scales(ConfigReader& reader, const Architecture& architecture, ModelConfig* config) {
  const auto factor = [&](const char* key, float usual) {
    const float scale = reader.number(key, -1e6, 1e6, 0.0);
    return scale == 0 ? usual : scale;
  };
  config->embedding_scale =
      factor("embedding_scale", architecture.scales_embedding ? std::sqrt(static_cast<float>(config->width)) : 1.0f);
  config->residual_scale = factor("residual_scale", 1);
  const float logit_scale = factor("logit_scale", 1);
  reader.expect(architecture.divides_logits || logit_scale == 1, ErrorCode::kUnsupported,
                fmt::format("unsupported model: {}logit_scale: scaled logits: expected 1, found {}", reader.prefix(),
                            logit_scale));
  config->logit_scale = 1 / logit_scale;
  config->logit_soft_cap = reader.number("final_logit_softcapping", 0, 1e6, 0.0);
}

}  // namespace

Status expect_whole_model(const Metadata& metadata) {
  const auto count = metadata.integer("split.count", 0, UINT16_MAX, 0);
  if (!count) return count.error();
  const auto part = metadata.integer("split.no", 0, UINT16_MAX, 0);
  if (!part) return part.error();
  if (*count > 1 && *part > 0)
    return make_error(
        ErrorCode::kUnsupported,
        "unsupported model: split.no: this is part {} of {}; models in one file are supported: merge the "
        "parts with llama.cpp's llama-gguf-split --merge, beginning with part 1 (...-00001-of-{:05}.gguf)",
        *part + 1, *count, *count);
  if (*count > 1)
    return make_error(
        ErrorCode::kUnsupported,
        "unsupported model: split.count: this is part 1 of {}; models in one file are supported: merge the "
        "parts with llama.cpp's llama-gguf-split --merge",
        *count);
  struct Kind {
    std::string_view type;
    const char* what;
  };
  constexpr Kind kKinds[] = {
      {"adapter", "an adapter (LoRA), not a model: merge it into its model and convert the result"},
      {"imatrix", "an importance matrix for quantising, not a model"},
      {"mmproj", "a projector for images or sound, not a model: name the language model's own file"},
      {"projector", "a projector for images or sound, not a model: name the language model's own file"},
      {"vocab", "a vocabulary without weights, not a model"},
  };
  const auto type = metadata.string("general.type", "model");
  if (!type) return type.error();
  const auto refuse = [](const char* key, const char* what) {
    return make_error(ErrorCode::kUnsupported, "unsupported model: {}: expected a model, found {}", key, what);
  };
  for (const Kind& kind : kKinds)
    if (*type == kind.type) return refuse("general.type", kind.what);
  const auto architecture = metadata.string("general.architecture", "");
  if (architecture && *architecture == "clip") return refuse("general.architecture", kKinds[2].what);
  if (metadata.has("imatrix.chunk_count") || metadata.has("imatrix.datasets"))
    return refuse("imatrix.chunk_count", kKinds[1].what);
  return {};
}

Result<const Architecture*> read_architecture(const Metadata& metadata) {
  auto name = metadata.string("general.architecture");
  if (!name) return name.error();
  if (const Architecture* architecture = find_architecture(*name)) return architecture;
  std::string known;
  for (const Architecture& architecture : architectures())
    known += fmt::format("{}{}", known.empty() ? "" : ", ", architecture.name);
  return make_error(ErrorCode::kUnsupported, "unsupported model: general.architecture: expected {}, found \"{}\"",
                    known, printable(*name));
}

Result<ModelConfig> read_config(const Architecture& architecture, const Metadata& metadata) {
  ConfigReader reader(metadata, std::string(architecture.name) + ".");
  refuse_what_is_not_done(reader, architecture);

  ModelConfig config;
  config.architecture = architecture.name;
  if (auto name = metadata.string("general.name", "")) config.name = *name;
  config.width = reader.integer("embedding_length", 1, kWidthMax);
  config.context_max = reader.integer("context_length", 1, kContextMax);
  const bool has_rms_eps = reader.find(kRmsEps) != nullptr || !architecture.has_lone_parts;
  config.rms_eps = reader.number(has_rms_eps ? kRmsEps : "attention.layer_norm_epsilon", 1e-12, 1);
  read_scales(reader, architecture, &config);
  read_layers(reader, architecture, &config);
  if (!reader.status()) return reader.status().error();
  return config;
}

}  // namespace llmrt
