#include "core/weights/hf_config.h"

#include <cmath>

#include "core/weights/hf_attention.h"
#include "core/weights/hf_latent.h"
#include "core/weights/hf_reader.h"
#include "core/weights/hf_recurrent.h"

namespace llmrt {
namespace {

constexpr int64_t kExpertsMax = 4096;

// Keys that are read here or in hf_attention.cpp, and those that change nothing about the tokens that follow a text.
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
                                          "partial_rotary_factor",
                                          "max_window_layers"};
constexpr std::string_view kGemmaKeys[] = {
    "hidden_activation",       "query_pre_attn_scalar",       "final_logit_softcapping",
    "attn_logit_softcapping",  "rope_local_base_freq",        "sliding_window_pattern",
    "_sliding_window_pattern", "use_bidirectional_attention", "cache_implementation"};
constexpr std::string_view kExpertKeys[] = {
    "num_experts", "num_local_experts", "num_experts_per_tok", "experts_per_token", "moe_intermediate_size",
    "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers", "swiglu_limit",
    // Training alone reads these; gpt-oss's scaling repeats its trained context.
    "output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "initial_context_length"};
// Beside text_config.
constexpr std::string_view kOuterKeys[] = {"text_config",     "vision_config",         "mm_tokens_per_image",
                                           "boi_token_index", "eoi_token_index",       "image_token_index",
                                           "boi_token_id",    "eoi_token_id",          "image_token_id",
                                           "video_token_id",  "vision_start_token_id", "vision_end_token_id"};
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
                                              "use_bfloat16",
                                              "quantization_config"};

Result<const HfFamily*> find_family_of(const JsonTree& config) {
  const JsonTree* type = config.find("model_type");
  const HfFamily* family = type == nullptr || type->string() == nullptr ? nullptr : find_hf_family(*type->string());
  if (family == nullptr) {
    std::string known;
    for (const HfFamily& one : hf_families()) known += fmt::format("{}{}", known.empty() ? "" : ", ", one.model_type);
    return refused_config("model_type: expected one of {}, found {}", known,
                          type == nullptr ? "nothing" : type->describe());
  }
  const JsonTree* classes = config.find("architectures");
  if (classes == nullptr) return family;
  const JsonTree::Items* items = classes->items();
  const std::string* name = items != nullptr && items->size() == 1 ? items->front().string() : nullptr;
  if (name != nullptr && *name == family->class_name) return family;
  return refused_config("architectures: expected [\"{}\"], found {}", family->class_name,
                        name != nullptr ? "\"" + printable(*name) + "\"" : classes->describe());
}

// What a gemma3 computes beyond the others.
void read_gemma(const std::string& prefix, HfReader& reader, CanonicalMetadata& metadata) {
  const double scalar = reader.number("query_pre_attn_scalar", 256);
  if (!(scalar > 0)) reader.refuse("query_pre_attn_scalar", "above 0", fmt::format("{}", scalar));
  metadata.add_f64(prefix + "attention.scale", 1 / std::sqrt(scalar));
  for (const char* key : {"final_logit_softcapping", "attn_logit_softcapping"})
    if (reader.find(key) != nullptr) metadata.add_f64(prefix + key, reader.number(key));
  if (reader.boolean("use_bidirectional_attention", false))
    reader.refuse("use_bidirectional_attention", "false", "true");
}

bool has_experts(const HfFamily& family, HfReader& reader) {
  if (family.recurrent == HfRecurrent::kLoneScan) return has_hf_expert_layers(family, reader);
  if (family.experts == HfExperts::kNone || !family.may_lack_experts) return family.experts != HfExperts::kNone;
  const JsonTree* count = reader.find(family.count_key);
  return count == nullptr || count->integer() == nullptr || *count->integer() != 0;
}

void read_experts(const HfFamily& family, const std::string& prefix, HfReader& reader, CanonicalMetadata& metadata,
                  HfConfig* out) {
  out->num_experts = reader.integer(family.count_key, family.num_experts, kExpertsMax);
  const uint64_t used = reader.integer("num_experts_per_tok", family.num_used, kExpertsMax);
  if (used > out->num_experts)
    reader.refuse("num_experts_per_tok", fmt::format("at most the {} experts", out->num_experts),
                  fmt::format("{}", used));
  if (const uint64_t other = reader.integer("experts_per_token", used); other != used)
    reader.refuse("experts_per_token", fmt::format("{}, as num_experts_per_tok", used), fmt::format("{}", other));
  metadata.add_u64(prefix + "expert_count", out->num_experts);
  metadata.add_u64(prefix + "expert_used_count", used);
  out->expert_width = family.expert_ffn > 0 ? reader.integer("moe_intermediate_size", family.expert_ffn)
                                            : reader.integer("intermediate_size", family.ffn);
  metadata.add_u64(prefix + "expert_feed_forward_length", out->expert_width);
  // Mixtral's weights always add up to 1; gpt-oss's are a softmax over the chosen experts, which its architecture says.
  if (family.experts == HfExperts::kOneTensorEach)
    metadata.add_bool(
        prefix + "expert_weights_norm",
        family.expert_ffn == 0 ||
            reader.boolean("norm_topk_prob", family.recurrent != HfRecurrent::kNone || family.has_correction));
  if (const uint64_t step = reader.integer("decoder_sparse_step", 1); step != 1)
    reader.refuse("decoder_sparse_step", "1, experts in every layer", fmt::format("{}", step));
  const JsonTree* dense = reader.find("mlp_only_layers");
  if (dense != nullptr && (dense->items() == nullptr || !dense->items()->empty()))
    reader.refuse("mlp_only_layers", "none, experts in every layer", dense->describe());
  if (const double limit = reader.number("swiglu_limit", 7); limit != 7)
    reader.refuse("swiglu_limit", "7", fmt::format("{}", limit));
}

// Sizes that all families have.
void read_sizes(const HfFamily& family, const std::string& prefix, HfReader& reader, CanonicalMetadata& metadata,
                HfConfig* out) {
  out->num_layers = read_hf_num_layers(family, reader);
  out->vocab_size = reader.integer("vocab_size", family.vocab);
  out->width = reader.integer("hidden_size", family.width);
  const uint64_t heads = reader.integer("num_attention_heads", family.heads);
  const uint64_t head_dim =
      family.is_latent ? 1
                       : reader.integer("head_dim", family.head_dim > 0 ? family.head_dim
                                                                        : std::max<uint64_t>(out->width / heads, 1));
  const uint64_t kv_heads = reader.has("num_key_value_heads") ? heads : family.kv_heads;
  metadata.add_string("general.architecture", family.architecture);
  metadata.add_u64(prefix + "block_count", out->num_layers);
  metadata.add_u64(prefix + "vocab_size", out->vocab_size);
  metadata.add_u64(prefix + "embedding_length", out->width);
  metadata.add_u64(prefix + "attention.head_count", heads);
  if (!family.is_latent) {
    metadata.add_u64(prefix + "attention.head_count_kv",
                     reader.integer("num_key_value_heads", kv_heads > 0 ? kv_heads : heads));
    metadata.add_u64(prefix + "attention.key_length", head_dim);
    metadata.add_u64(prefix + "attention.value_length", head_dim);
  }
  metadata.add_u64(prefix + "feed_forward_length", reader.integer("intermediate_size", family.ffn));
  metadata.add_u64(prefix + "context_length", reader.integer("max_position_embeddings", family.context));
  metadata.add_f64(prefix + "attention.layer_norm_rms_epsilon",
                   reader.number("rms_norm_eps", family.eps > 0 ? std::optional(family.eps) : std::nullopt));
}

void read_text_config(const HfFamily& family, HfReader& reader, CanonicalMetadata& metadata, HfConfig* out) {
  const std::string prefix = std::string(family.architecture) + ".";
  constexpr std::span<const std::string_view> kNone;
  reader.expect_known({kReadKeys, kHarmlessKeys, hf_recurrent_keys(family.recurrent),
                       family.is_gemma ? std::span(kGemmaKeys) : kNone, family.is_latent ? hf_latent_keys() : kNone,
                       family.experts != HfExperts::kNone ? std::span(kExpertKeys) : kNone});
  if (family.recurrent != HfRecurrent::kNone) read_hf_recurrent(family, prefix, reader, metadata);
  read_sizes(family, prefix, reader, metadata, out);
  // No row of q and k is permuted, as GGUF's converter does for some architectures.
  const bool has_neighbours = family.is_latent && reader.boolean("rope_interleave", true);
  metadata.add_string("llmrt.rope_pairing", has_neighbours ? "interleaved" : "halves");
  if (const std::string act = reader.string(family.activation_key, family.activation); act != family.activation)
    reader.refuse(family.activation_key, family.activation, "\"" + printable(act) + "\"");
  for (const char* key : {"attention_bias", "mlp_bias"})
    if (reader.boolean(key, false) && !family.may_have_biases) reader.refuse(key, "false", "true");
  if (family.is_gemma) read_gemma(prefix, reader, metadata);
  if (family.recurrent == HfRecurrent::kLoneScan) out->scan_groups = reader.integer("n_groups", 8);
  if (has_experts(family, reader)) read_experts(family, prefix, reader, metadata, out);
  if (family.is_latent) read_hf_latent(family, prefix, reader, metadata, out);
  if (!reader.status()) return;
  read_hf_rope(family, prefix, reader, metadata);
  if (family.recurrent == HfRecurrent::kNone) read_hf_windows(family, prefix, out->num_layers, reader, metadata);
}

// The part of the text model, checked to be one of a family that is read.
Result<const JsonTree*> find_text_config(const HfFamily& family, const JsonTree& config) {
  if (!family.is_nested) return &config;
  HfReader reader(config, "");
  reader.expect_known({kReadKeys, kHarmlessKeys, kOuterKeys});
  if (!reader.status()) return reader.status().error();
  const JsonTree* text = config.find("text_config");
  if (text == nullptr || text->members() == nullptr)
    return refused_config("text_config: expected an object, found {}", text == nullptr ? "nothing" : text->describe());
  const JsonTree* type = text->find("model_type");
  const std::string expected = std::string(family.model_type) + "_text";
  if (type != nullptr && (type->string() == nullptr || *type->string() != expected))
    return refused_config("text_config.model_type: expected {}, found {}", expected, type->describe());
  return text;
}

}  // namespace

Result<HfConfig> read_hf_config(const JsonTree& config, const JsonTree* quantization, CanonicalMetadata& metadata) {
  if (config.members() == nullptr)
    return make_error(ErrorCode::kCorruptFile, "bad config.json: expected an object, found {}", config.describe());
  auto family = find_family_of(config);
  if (!family) return family.error();
  auto text = find_text_config(**family, config);
  if (!text) return text.error();
  auto read = read_hf_quantization(config.find("quantization_config"), quantization);
  if (!read) return read.error();
  HfConfig out;
  out.family = *family;
  out.quantization = *read;
  HfReader outer(config, ""), reader(**text, (*family)->is_nested ? "text_config." : "");
  out.is_tied = reader.boolean("tie_word_embeddings", outer.boolean("tie_word_embeddings", (*family)->is_tied));
  reader.keep(outer.status());
  read_text_config(**family, reader, metadata, &out);
  if (!reader.status()) return reader.status().error();
  return out;
}

}  // namespace llmrt
