#include <algorithm>
#include <cmath>

#include "core/model/read_metadata.h"

namespace llmrt {

namespace {

constexpr uint32_t kLayersMax = 1024;
constexpr uint32_t kWidthMax = 1u << 20;
constexpr uint32_t kFfnWidthMax = 1u << 22;
constexpr uint32_t kHeadsMax = 4096;
constexpr uint32_t kHeadDimMax = 1024;
constexpr uint32_t kContextMax = 1u << 30;

// Keys that change the computation in a way that the decoder does not do, unless at the neutral value.
struct NeutralKey {
  const char* key;
  double neutral;
  const char* meaning;
};
constexpr NeutralKey kNeutralKeys[] = {
    {"expert_count", 0, "mixture of experts"},   {"final_logit_softcapping", 0, "a soft cap on logits"},
    {"logit_scale", 1, "scaled logits"},         {"residual_scale", 1, "scaled residuals"},
    {"embedding_scale", 1, "scaled embeddings"}, {"attention.clamp_kqv", 0, "clamped q, k and v"},
    {"attention.max_alibi_bias", 0, "ALiBi"},    {"attn_logit_softcapping", 0, "a soft cap on attention scores"},
    {"pooling_type", 0, "an embedding model"},   {"use_parallel_residual", 0, "parallel residuals"},
};

// The other keys that may follow "<architecture>.": what is read here or in rope_frequencies.cpp, and what changes
// nothing. A key that is in neither table is refused: it may say that the model computes something else.
constexpr const char* kKnownKeys[] = {
    "vocab_size",
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "tensor_data_layout",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.scale",
    "attention.sliding_window",
    "attention.causal",
    "rope.dimension_count",
    "rope.freq_base",
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

bool is_known_key(std::string_view key) {
  if (key.starts_with("expert_")) return true;  // without effect where expert_count is 0
  const auto is_key = [key](std::string_view known) { return known == key; };
  return std::any_of(std::begin(kKnownKeys), std::end(kKnownKeys), is_key) ||
         std::any_of(std::begin(kNeutralKeys), std::end(kNeutralKeys),
                     [&](const NeutralKey& neutral) { return is_key(neutral.key); });
}

// Reads one key after another; the first error is kept.
class ConfigReader {
 public:
  ConfigReader(const Metadata& metadata, std::string prefix) : metadata_(metadata), prefix_(std::move(prefix)) {}

  uint32_t integer(const char* name, uint64_t min, uint64_t max, std::optional<uint64_t> fallback = {}) {
    auto value = metadata_.integer(prefix_ + name, min, max, fallback);
    return static_cast<uint32_t>(keep(value, min));
  }
  float number(const char* name, double min, double max, std::optional<double> fallback = {}) {
    auto value = metadata_.number(prefix_ + name, min, max, fallback);
    return static_cast<float>(keep(value, min));
  }
  void expect(bool condition, ErrorCode code, const std::string& message) {
    if (!condition && status_) status_ = Error{code, message};
  }
  void refuse_what_is_not_done() {
    for (const auto& [key, neutral, meaning] : kNeutralKeys) {
      const MetadataValue* value = metadata_.find(prefix_ + key);
      if (value == nullptr) continue;
      const auto as_integer = metadata_.integer(prefix_ + key, 0, UINT32_MAX);
      const auto as_number = metadata_.number(prefix_ + key, -1e30, 1e30);
      const auto as_boolean = metadata_.boolean(prefix_ + key);
      const bool is_neutral = (as_integer && static_cast<double>(*as_integer) == neutral) ||
                              (as_number && *as_number == neutral) || (as_boolean && *as_boolean == (neutral != 0));
      expect(is_neutral, ErrorCode::kUnsupported,
             fmt::format("unsupported model: {}{}: {}: expected {}, found {}", prefix_, key, meaning, neutral,
                         describe(*value)));
    }
    const auto causal = metadata_.boolean(prefix_ + "attention.causal", true);
    expect(causal && *causal, ErrorCode::kUnsupported,
           fmt::format("unsupported model: {}attention.causal: expected true", prefix_));
    for (const Metadata::Entry& entry : metadata_.entries()) {
      if (!entry.key.starts_with(prefix_)) continue;
      expect(is_known_key(entry.key.substr(prefix_.size())), ErrorCode::kUnsupported,
             fmt::format("unsupported model: {}: not a key that this decoder knows, found {}", printable(entry.key),
                         describe(entry.value)));
    }
  }
  const Status& status() const { return status_; }
  const std::string& prefix() const { return prefix_; }

 private:
  template <typename T, typename U>
  T keep(const Result<T>& value, U otherwise) {
    if (value) return *value;
    if (status_) status_ = value.error();
    return static_cast<T>(otherwise);
  }

  const Metadata& metadata_;
  std::string prefix_;
  Status status_;
};

void read_heads(ConfigReader& reader, ModelConfig* config) {
  config->num_heads = reader.integer("attention.head_count", 1, kHeadsMax);
  config->num_kv_heads = reader.integer("attention.head_count_kv", 1, kHeadsMax, config->num_heads);
  reader.expect(config->num_heads % config->num_kv_heads == 0, ErrorCode::kCorruptFile,
                fmt::format("bad metadata: {}attention.head_count: expected a multiple of head_count_kv {}, found {}",
                            reader.prefix(), config->num_kv_heads, config->num_heads));
  config->head_dim = reader.integer("attention.key_length", 2, kHeadDimMax, config->width / config->num_heads);
  const uint32_t value_dim = reader.integer("attention.value_length", 1, kHeadDimMax, config->head_dim);
  reader.expect(value_dim == config->head_dim, ErrorCode::kUnsupported,
                fmt::format("unsupported model: {}attention.value_length: expected key_length {}, found {}",
                            reader.prefix(), config->head_dim, value_dim));
  reader.expect(config->head_dim >= 2 && config->head_dim <= kHeadDimMax && config->head_dim % 2 == 0,
                ErrorCode::kUnsupported,
                fmt::format("unsupported model: {}attention.key_length: expected an even number in [2, {}], found {}",
                            reader.prefix(), kHeadDimMax, config->head_dim));
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
  reader.refuse_what_is_not_done();

  ModelConfig config;
  config.architecture = architecture.name;
  if (auto name = metadata.string("general.name", "")) config.name = *name;
  config.num_layers = reader.integer("block_count", 1, kLayersMax);
  config.width = reader.integer("embedding_length", 1, kWidthMax);
  config.ffn_width = reader.integer("feed_forward_length", 1, kFfnWidthMax);
  config.context_max = reader.integer("context_length", 1, kContextMax);
  config.rms_eps = reader.number("attention.layer_norm_rms_epsilon", 1e-12, 1);
  read_heads(reader, &config);
  config.rope_dim = reader.integer("rope.dimension_count", 2, kHeadDimMax, config.head_dim);
  reader.expect(config.rope_dim % 2 == 0 && config.rope_dim <= config.head_dim, ErrorCode::kCorruptFile,
                fmt::format("bad metadata: {}rope.dimension_count: expected an even number up to {}, found {}",
                            reader.prefix(), config.head_dim, config.rope_dim));
  config.rope_pairing = architecture.rope_pairing;
  config.qk_norm = architecture.qk_norm;
  config.attention_scale = reader.number("attention.scale", 1e-6, 1e6, 1 / std::sqrt(double(config.head_dim)));
  // Which layers have it differs by model, and files do not say so.
  const uint32_t window = reader.integer("attention.sliding_window", 0, kContextMax, 0);
  reader.expect(window == 0 || window >= config.context_max, ErrorCode::kUnsupported,
                fmt::format("unsupported model: {}attention.sliding_window: expected none below the context of {}, "
                            "found {}",
                            reader.prefix(), config.context_max, window));
  if (!reader.status()) return reader.status().error();
  return config;
}

}  // namespace llmrt
