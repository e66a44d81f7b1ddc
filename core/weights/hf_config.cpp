#include "core/weights/hf_config.h"

#include <algorithm>
#include <cmath>

namespace llmrt {
namespace {

struct HfArchitecture {
  std::string_view name;        // model_type and GGUF's name alike
  std::string_view class_name;  // in "architectures"
  uint64_t head_dim;            // transformers' default; 0: width / heads
  bool may_have_biases;         // attention_bias and mlp_bias may be true
};
constexpr HfArchitecture kHfArchitectures[] = {
    {"llama", "LlamaForCausalLM", 0, true},
    {"qwen2", "Qwen2ForCausalLM", 0, false},
    {"qwen3", "Qwen3ForCausalLM", 128, false},
};

// Keys that are read below, and those that change nothing about the tokens that follow a text.
constexpr std::string_view kReadKeys[] = {"architectures",
                                          "model_type",
                                          "hidden_size",
                                          "num_hidden_layers",
                                          "num_attention_heads",
                                          "num_key_value_heads",
                                          "head_dim",
                                          "intermediate_size",
                                          "vocab_size",
                                          "rms_norm_eps",
                                          "max_position_embeddings",
                                          "tie_word_embeddings",
                                          "rope_theta",
                                          "rope_scaling",
                                          "rope_parameters",
                                          "hidden_act",
                                          "attention_bias",
                                          "mlp_bias",
                                          "sliding_window",
                                          "use_sliding_window",
                                          "layer_types",
                                          "rope_interleaved",
                                          "partial_rotary_factor"};
constexpr std::string_view kHarmlessKeys[] = {"torch_dtype",
                                              "dtype",
                                              "transformers_version",
                                              "use_cache",
                                              "initializer_range",
                                              "pretraining_tp",
                                              "attention_dropout",
                                              "hidden_dropout",
                                              "bos_token_id",
                                              "eos_token_id",
                                              "pad_token_id",
                                              "unk_token_id",
                                              "_name_or_path",
                                              "is_llama_config",
                                              "transformers.js_config",
                                              "max_window_layers",
                                              "unsloth_version",
                                              "unsloth_fixed",
                                              "_attn_implementation",
                                              "_attn_implementation_autoset",
                                              "id2label",
                                              "label2id",
                                              "problem_type",
                                              "task_specific_params",
                                              "return_dict",
                                              "output_attentions",
                                              "output_hidden_states",
                                              "chunk_size_feed_forward",
                                              "finetuning_task",
                                              "is_decoder",
                                              "torchscript",
                                              "tf_legacy_loss",
                                              "use_bfloat16"};

template <typename... Args>
Error refused_config(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kUnsupported, "unsupported model: config.json: {}",
                    fmt::format(format, std::forward<Args>(args)...));
}

// Members of one object, read one after another; the first error is kept. `place` stands before names in messages.
class HfReader {
 public:
  HfReader(const JsonTree& object, std::string place) : object_(object), place_(std::move(place)) {}

  uint64_t integer(std::string_view name, std::optional<uint64_t> otherwise = {}) {
    const JsonTree* found = object_.find(name);
    if (found == nullptr && otherwise) return *otherwise;
    const int64_t* value = found == nullptr ? nullptr : found->integer();
    if (value != nullptr && *value > 0 && *value <= INT32_MAX) return static_cast<uint64_t>(*value);
    fail(name, "an integer in [1, 2147483647]", found);
    return 1;
  }
  double number(std::string_view name, std::optional<double> otherwise = {}) {
    const JsonTree* found = object_.find(name);
    if (found == nullptr && otherwise) return *otherwise;
    double value = 0;
    if (found != nullptr && found->number(&value) && std::isfinite(value)) return value;
    fail(name, "a number", found);
    return 1;
  }
  bool boolean(std::string_view name, bool otherwise) {
    const JsonTree* found = object_.find(name);
    if (found == nullptr) return otherwise;
    if (found->boolean() != nullptr) return *found->boolean();
    fail(name, "true or false", found);
    return otherwise;
  }
  // Absent or null: `otherwise`.
  std::string string(std::string_view name, std::string_view otherwise) {
    const JsonTree* found = object_.find(name);
    if (found == nullptr) return std::string(otherwise);
    if (found->string() != nullptr) return *found->string();
    fail(name, "a string", found);
    return std::string(otherwise);
  }
  const JsonTree* find(std::string_view name) const { return object_.find(name); }
  void refuse(std::string_view name, std::string_view expected, const std::string& found) {
    if (status_) status_ = refused_config("{}{}: expected {}, found {}", place_, name, expected, found);
  }
  void keep(const Status& status) {
    if (status_) status_ = status;
  }
  // Refuses members, null ones apart, that are in none of the lists.
  void expect_known(std::initializer_list<std::span<const std::string_view>> lists) {
    for (const JsonMember& member : *object_.members()) {
      const bool is_known =
          std::ranges::any_of(lists, [&](auto list) { return std::ranges::find(list, member.name) != list.end(); });
      if (!is_known && !member.value.is_null() && status_)
        status_ = refused_config("{}{}: not a key that is known here, found {}", place_, printable(member.name),
                                 member.value.describe());
    }
  }
  const Status& status() const { return status_; }

 private:
  void fail(std::string_view name, std::string_view expected, const JsonTree* found) {
    if (status_)
      status_ = make_error(ErrorCode::kCorruptFile, "bad config.json: {}{}: expected {}, found {}", place_, name,
                           expected, found == nullptr ? "nothing" : found->describe());
  }

  const JsonTree& object_;
  std::string place_;
  Status status_;
};

Result<const HfArchitecture*> find_hf_architecture(const JsonTree& config) {
  const JsonTree* type = config.find("model_type");
  for (const HfArchitecture& architecture : kHfArchitectures) {
    if (type == nullptr || type->string() == nullptr || *type->string() != architecture.name) continue;
    const JsonTree* classes = config.find("architectures");
    if (classes == nullptr) return &architecture;
    const JsonTree::Items* items = classes->items();
    const std::string* name = items != nullptr && items->size() == 1 ? items->front().string() : nullptr;
    if (name != nullptr && *name == architecture.class_name) return &architecture;
    return refused_config("architectures: expected [\"{}\"], found {}", architecture.class_name,
                          name != nullptr ? "\"" + printable(*name) + "\"" : classes->describe());
  }
  return refused_config("model_type: expected llama, qwen2 or qwen3, found {}",
                        type == nullptr ? "nothing" : type->describe());
}

// rope_scaling, or rope_parameters of later versions, which holds the base as well.
void read_rope_scaling(const JsonTree& object, std::string_view key, const std::string& prefix, HfReader& config,
                       CanonicalMetadata& metadata) {
  if (object.members() == nullptr) return config.refuse(key, "an object", object.describe());
  HfReader reader(object, std::string(key) + ".");
  const std::string type = reader.string("rope_type", reader.string("type", "default"));
  const auto add = [&](const char* name, const char* canonical, std::optional<double> otherwise) {
    if (otherwise && reader.find(name) == nullptr) return;
    metadata.add_f64(prefix + canonical, reader.number(name, otherwise));
  };
  constexpr std::string_view kAll[] = {"rope_type", "type", "rope_theta"};
  constexpr std::string_view kLinear[] = {"factor"};
  constexpr std::string_view kLlama3[] = {"factor", "low_freq_factor", "high_freq_factor",
                                          "original_max_position_embeddings"};
  constexpr std::string_view kYarn[] = {
      "factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor", "finetuned"};
  if (type == "default") {
    reader.expect_known({kAll});
  } else if (type == "linear") {
    reader.expect_known({kAll, kLinear});
  } else if (type == "llama3") {
    reader.expect_known({kAll, kLlama3});
    add("low_freq_factor", "rope.scaling.low_freq_factor", {});
    add("high_freq_factor", "rope.scaling.high_freq_factor", {});
    metadata.add_u64(prefix + "rope.scaling.original_context_length",
                     reader.integer("original_max_position_embeddings"));
  } else if (type == "yarn") {
    reader.expect_known({kAll, kYarn});
    add("beta_fast", "rope.scaling.yarn_beta_fast", 32);
    add("beta_slow", "rope.scaling.yarn_beta_slow", 1);
    add("attention_factor", "rope.scaling.yarn_attn_factor", 1);
    if (reader.find("original_max_position_embeddings") != nullptr)
      metadata.add_u64(prefix + "rope.scaling.original_context_length",
                       reader.integer("original_max_position_embeddings"));
  } else {
    reader.refuse("rope_type", "default, linear, llama3 or yarn", "\"" + printable(type) + "\"");
  }
  if (type != "default") {
    metadata.add_string(prefix + "rope.scaling.type", type);
    add("factor", "rope.scaling.factor", {});
  }
  config.keep(reader.status());
}

void read_rope(const std::string& prefix, HfReader& reader, CanonicalMetadata& metadata) {
  std::optional<double> base;
  for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
    const JsonTree* object = reader.find(key);
    if (object == nullptr) continue;
    if (key == "rope_scaling" && reader.find("rope_parameters") != nullptr)
      return reader.refuse(key, "none beside rope_parameters", object->describe());
    read_rope_scaling(*object, key, prefix, reader, metadata);
    if (object->members() != nullptr && object->find("rope_theta") != nullptr) {
      HfReader inner(*object, std::string(key) + ".");
      base = inner.number("rope_theta");
      reader.keep(inner.status());
    }
  }
  const double own = reader.number("rope_theta", base.value_or(10000));
  if (base && *base != own)
    reader.refuse("rope_theta", fmt::format("{}, as beside the scaling", *base), fmt::format("{}", own));
  metadata.add_f64(prefix + "rope.freq_base", own);
  if (const double share = reader.number("partial_rotary_factor", 1); share != 1)
    reader.refuse("partial_rotary_factor", "1", fmt::format("{}", share));
  if (reader.boolean("rope_interleaved", false)) reader.refuse("rope_interleaved", "false", "true");
}

// Layers with a window: none of these architectures' models in circulation turns them on.
void refuse_windows(const HfArchitecture& architecture, HfReader& reader) {
  const JsonTree* window = reader.find("sliding_window");
  const bool is_used = reader.boolean("use_sliding_window", window != nullptr && architecture.name == "llama");
  if (is_used)
    reader.refuse(reader.find("use_sliding_window") != nullptr ? "use_sliding_window" : "sliding_window",
                  "no sliding window", window == nullptr ? "true" : window->describe());
  const JsonTree* types = reader.find("layer_types");
  if (types == nullptr) return;
  if (types->items() == nullptr) return reader.refuse("layer_types", "an array", types->describe());
  for (const JsonTree& type : *types->items())
    if (type.string() == nullptr || *type.string() != "full_attention")
      return reader.refuse("layer_types", "full_attention alone", type.describe());
}

}  // namespace

Result<HfConfig> read_hf_config(const JsonTree& config, CanonicalMetadata& metadata) {
  if (config.members() == nullptr)
    return make_error(ErrorCode::kCorruptFile, "bad config.json: expected an object, found {}", config.describe());
  auto architecture = find_hf_architecture(config);
  if (!architecture) return architecture.error();
  HfReader reader(config, "");
  if (const JsonTree* quantization = reader.find("quantization_config"))
    reader.refuse("quantization_config", "f32, f16 or bf16 weights", quantization->describe());
  reader.expect_known({kReadKeys, kHarmlessKeys});
  HfConfig out;
  out.architecture = (*architecture)->name;
  out.num_layers = reader.integer("num_hidden_layers");
  out.vocab_size = reader.integer("vocab_size");
  out.is_tied = reader.boolean("tie_word_embeddings", false);
  const std::string prefix = out.architecture + ".";
  const uint64_t width = reader.integer("hidden_size");
  const uint64_t heads = reader.integer("num_attention_heads");
  const uint64_t usual_head = (*architecture)->head_dim > 0 ? (*architecture)->head_dim : width / heads;
  const uint64_t head_dim = reader.integer("head_dim", usual_head);
  metadata.add_string("general.architecture", out.architecture);
  metadata.add_u64(prefix + "block_count", out.num_layers);
  metadata.add_u64(prefix + "vocab_size", out.vocab_size);
  metadata.add_u64(prefix + "embedding_length", width);
  metadata.add_u64(prefix + "attention.head_count", heads);
  metadata.add_u64(prefix + "attention.head_count_kv", reader.integer("num_key_value_heads", heads));
  metadata.add_u64(prefix + "attention.key_length", head_dim);
  metadata.add_u64(prefix + "attention.value_length", head_dim);
  metadata.add_u64(prefix + "feed_forward_length", reader.integer("intermediate_size"));
  metadata.add_u64(prefix + "context_length", reader.integer("max_position_embeddings"));
  metadata.add_f64(prefix + "attention.layer_norm_rms_epsilon", reader.number("rms_norm_eps"));
  // No row of q and k is permuted, as GGUF's converter does for some architectures.
  metadata.add_string("llmrt.rope_pairing", "halves");
  if (const std::string act = reader.string("hidden_act", "silu"); act != "silu")
    reader.refuse("hidden_act", "silu", "\"" + printable(act) + "\"");
  for (const char* key : {"attention_bias", "mlp_bias"})
    if (reader.boolean(key, false) && !(*architecture)->may_have_biases) reader.refuse(key, "false", "true");
  read_rope(prefix, reader, metadata);
  refuse_windows(**architecture, reader);
  if (!reader.status()) return reader.status().error();
  return out;
}

}  // namespace llmrt
