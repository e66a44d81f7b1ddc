#include "server/known_fields.h"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace llmrt::server {
namespace {

namespace json = boost::json;

constexpr uint8_t kChat = static_cast<uint8_t>(Endpoint::kChat);
constexpr uint8_t kCompletion = static_cast<uint8_t>(Endpoint::kCompletion);
constexpr uint8_t kTokenize = static_cast<uint8_t>(Endpoint::kTokenize);
constexpr uint8_t kInfill = static_cast<uint8_t>(Endpoint::kInfill);
constexpr uint8_t kRaw = kCompletion | kInfill;  // no chats
constexpr auto kRefused = Tier::kRefused;
constexpr auto kNoted = Tier::kNoted;

constexpr std::string_view kNoGrammar = "use response_format or structured_outputs";
constexpr std::string_view kNoAdapters = "name the adapter as the model";
constexpr std::string_view kNoTransfer = "keys and values are not taken from other servers";
constexpr std::string_view kTextOnly = "this model reads and writes text only";
constexpr std::string_view kSamplers = "use temperature, top_k, top_p or min_p";
constexpr std::string_view kUseMaxTokens = "use max_tokens";
constexpr std::string_view kUnpack = "put its members beside the other fields";
constexpr std::string_view kUseMessages = "use messages";
constexpr std::string_view kUseReturnIds = "use return_token_ids";

// Names of OpenAI (Python client 3.57), vLLM 0.33, SGLang 0.5.23, llama.cpp, Ollama, OpenRouter and others that an
// endpoint does not read itself. A name belongs here even where it would fall into its tier by itself, if it is near
// another known name.
constexpr KnownField kKnown[] = {
    // The structure of the answer.
    {"structural_tag", kRefused, Neutral::kNothing, kNoGrammar},
    {"regex", kRefused, Neutral::kNothing, kNoGrammar},
    {"ebnf", kRefused, Neutral::kNothing, kNoGrammar},
    {"grammar_lazy", kRefused, Neutral::kFalse, kNoGrammar},
    {"grammar_triggers", kRefused, Neutral::kEmpty, kNoGrammar},
    {"json_mode", kRefused, Neutral::kFalse, kNoGrammar},
    {"output_config", kRefused, Neutral::kEmpty, kNoGrammar},
    {"format", kRefused, Neutral::kEmpty, kNoGrammar},
    {"text", kRefused, Neutral::kNothing, kNoGrammar},
    {"guided_decoding_backend", Tier::kHarmless},
    {"guided_whitespace_pattern", Tier::kHarmless},
    // Which tokens may be drawn, and how.
    {"logits_processors", kRefused, Neutral::kEmpty, "use logit_bias or bad_words"},
    {"logit_processors", kRefused, Neutral::kEmpty, "use logit_bias or bad_words"},
    {"custom_logit_processor", kRefused, Neutral::kNothing, "use logit_bias or bad_words"},
    {"allowed_token_ids", kRefused, Neutral::kNothing, "use logit_bias or bad_words"},
    {"repeat_penalty", kRefused, Neutral::kOne, "use repetition_penalty"},
    {"encoder_repetition_penalty", kRefused, Neutral::kOne, "use repetition_penalty"},
    {"repetition_detection", kRefused, Neutral::kNothing, "use no_repeat_ngram_size or repetition_penalty"},
    {"typical_p", kRefused, Neutral::kOne, kSamplers},
    {"typ_p", kRefused, Neutral::kOne, kSamplers},
    {"tfs_z", kRefused, Neutral::kOne, kSamplers},
    {"tfs", kRefused, Neutral::kOne, kSamplers},
    {"top_a", kRefused, Neutral::kZero, kSamplers},
    {"xtc_probability", kRefused, Neutral::kZero, kSamplers},
    {"dry_multiplier", kRefused, Neutral::kZero, "use repetition_penalty or no_repeat_ngram_size"},
    {"mirostat", kRefused, Neutral::kZero, kSamplers},
    {"mirostat_mode", kRefused, Neutral::kZero, kSamplers},
    {"dynatemp_range", kRefused, Neutral::kZero, kSamplers},
    {"smoothing_factor", kRefused, Neutral::kZero, kSamplers},
    {"epsilon_cutoff", kRefused, Neutral::kZero, kSamplers},
    {"eta_cutoff", kRefused, Neutral::kZero, kSamplers},
    {"penalty_alpha", kRefused, Neutral::kZero, kSamplers},
    {"samplers", kRefused, Neutral::kNothing, "the order is fixed: use temperature, top_k, top_p or min_p"},
    {"guidance_scale", kRefused, Neutral::kOne, "a second, negative prompt is not there"},
    {"cfg_scale", kRefused, Neutral::kOne, "a second, negative prompt is not there"},
    {"negative_prompt", kRefused, Neutral::kEmpty, "a second, negative prompt is not there"},
    {"do_sample", kRefused, Neutral::kTrue, "use temperature: 0"},
    {"random_seed", kRefused, Neutral::kNothing, "use seed"},
    {"watermark", kRefused, Neutral::kOff, "answers carry no watermark"},
    {"watermarking", kRefused, Neutral::kOff, "answers carry no watermark"},
    {"repeat_last_n", kNoted, Neutral::kZero},
    {"min_keep", kNoted, Neutral::kZero},
    {"xtc_threshold", Tier::kHarmless},
    {"dry_base", Tier::kHarmless},
    {"dry_allowed_length", Tier::kHarmless},
    {"dry_penalty_last_n", Tier::kHarmless},
    {"dry_sequence_breakers", Tier::kHarmless},
    {"mirostat_tau", Tier::kHarmless},
    {"mirostat_eta", Tier::kHarmless},
    {"dynatemp_exponent", Tier::kHarmless},
    {"smoothing_curve", Tier::kHarmless},
    {"penalize_nl", kNoted, Neutral::kOff},
    {"penalize_newline", kNoted, Neutral::kOff},
    // How long it may be, where it ends, how many there are.
    {"n_predict", kRefused, Neutral::kMinusOne, kUseMaxTokens},
    {"num_predict", kRefused, Neutral::kMinusOne, kUseMaxTokens},
    {"max_new_tokens", kRefused, Neutral::kNothing, kUseMaxTokens},
    {"max_length", kRefused, Neutral::kNothing, kUseMaxTokens},
    {"max_output_tokens", kRefused, Neutral::kNothing, kUseMaxTokens},
    {"max_tokens_to_sample", kRefused, Neutral::kNothing, kUseMaxTokens},
    {"max_completion_tokens", kRefused, Neutral::kNothing, kUseMaxTokens, kRaw},
    {"min_new_tokens", kRefused, Neutral::kZero, "use min_tokens"},
    {"n_indent", kRefused, Neutral::kZero, "ask for it in the prompt"},
    {"t_max_predict_ms", kRefused, Neutral::kZero, "use max_tokens or deadline_ms"},
    {"stop_regex", kRefused, Neutral::kEmpty, "use stop"},
    {"stop_sequences", kRefused, Neutral::kEmpty, "use stop"},
    {"stop_strings", kRefused, Neutral::kEmpty, "use stop"},
    {"no_stop_trim", kRefused, Neutral::kFalse, "use include_stop_str_in_output"},
    {"best_of", kRefused, Neutral::kOne, "use n, or best_of of /v1/completions", kChat | kInfill},
    {"n_cmpl", kRefused, Neutral::kOne, "use n"},
    {"num_return_sequences", kRefused, Neutral::kOne, "use n"},
    {"num_beams", kRefused, Neutral::kOne, "use use_beam_search and n"},
    {"thinking_token_budget", kRefused, Neutral::kMinusOne, "use /v1/chat/completions", kRaw},
    {"thinking_budget_tokens", kRefused, Neutral::kMinusOne, "use /v1/chat/completions", kRaw},
    {"thinking_budget", kRefused, Neutral::kMinusOne, "use /v1/chat/completions", kRaw},
    {"reasoning_budget_tokens", kRefused, Neutral::kMinusOne, "use /v1/chat/completions", kRaw},
    {"reasoning_budget", kRefused, Neutral::kMinusOne, "use /v1/chat/completions", kRaw},
    {"include_reasoning", kRefused, Neutral::kTrue, "thoughts stand in the content as the model writes them"},
    {"think", kRefused, Neutral::kNothing, "use chat_template_kwargs: {\"enable_thinking\": true or false}"},
    {"enable_thinking", kRefused, Neutral::kNothing, "use /v1/chat/completions", kRaw},
    {"thinking", kNoted},
    {"thinking_mode", kNoted},
    {"reasoning", kNoted},
    {"reasoning_format", kNoted},
    {"separate_reasoning", Tier::kHarmless},
    {"stream_reasoning", Tier::kHarmless},
    {"skip_reading_prefix_cache", Tier::kHarmless},
    // What is in the prompt.
    {"truncate_prompt_tokens", kRefused, Neutral::kNothing, "prompts are not cut: send what fits in the context"},
    {"truncate", kRefused, Neutral::kOff, "prompts are not cut: send what fits in the context"},
    {"truncation_side", Tier::kHarmless},
    {"prompt_embeds", kRefused, Neutral::kNothing, "use prompt"},
    {"input_ids", kRefused, Neutral::kNothing, "use prompt of /v1/completions"},
    {"input_embeds", kRefused, Neutral::kNothing, "use prompt"},
    {"input", kRefused, Neutral::kNothing, "use messages of /v1/chat/completions or prompt of /v1/completions"},
    {"inputs", kRefused, Neutral::kNothing, "use messages of /v1/chat/completions or prompt of /v1/completions"},
    {"instructions", kRefused, Neutral::kEmpty, "use a message of role system"},
    {"system", kRefused, Neutral::kEmpty, "use a message of role system"},
    {"system_prompt", kRefused, Neutral::kEmpty, "use a message of role system"},
    {"previous_response_id", kRefused, Neutral::kNothing, "send the whole history as messages"},
    {"conversation", kRefused, Neutral::kNothing, "send the whole history as messages"},
    {"context", kRefused, Neutral::kEmpty, "send the whole history as messages"},
    {"template", kRefused, Neutral::kEmpty, "use prompt of /v1/completions, rendered"},
    {"raw", kRefused, Neutral::kFalse, "use /v1/completions"},
    {"suffix", kRefused, Neutral::kEmpty, "use suffix of /v1/completions, or input_suffix of /infill",
     kChat | kTokenize | kInfill},
    {"prefix", kRefused, Neutral::kEmpty, "use prompt of /v1/completions, or input_prefix of /infill"},
    {"input_prefix", kRefused, Neutral::kEmpty, "use /infill, or prompt of /v1/completions"},
    {"input_suffix", kRefused, Neutral::kEmpty, "use /infill, or suffix of /v1/completions"},
    {"input_extra", kRefused, Neutral::kEmpty, "use /infill"},
    {"prompt", kRefused, Neutral::kNothing, "use messages, or /v1/completions", kChat},
    {"messages", kRefused, Neutral::kNothing, "use prompt, or /v1/chat/completions", kRaw},
    {"tools", kRefused, Neutral::kEmpty, "use /v1/chat/completions", kRaw},
    {"tool_choice", kRefused, Neutral::kNothing, "use /v1/chat/completions", kRaw},
    {"functions", kRefused, Neutral::kEmpty, "use /v1/chat/completions", kRaw},
    {"function_call", kRefused, Neutral::kNothing, "use /v1/chat/completions", kRaw},
    {"chat_template", kRefused, Neutral::kNothing, "the model's own is used: see chat_template_kwargs"},
    {"chat_template_kwargs", kRefused, Neutral::kEmpty, "use /v1/chat/completions", kRaw},
    {"continue_final_message", kRefused, Neutral::kFalse, "use /v1/completions", kRaw},
    {"add_generation_prompt", kNoted, Neutral::kNothing, {}, kRaw},
    {"documents", kRefused, Neutral::kEmpty, "use /v1/chat/completions", kRaw},
    {"images", kRefused, Neutral::kEmpty, kTextOnly},
    {"audio", kRefused, Neutral::kNothing, kTextOnly},
    {"mm_payload", kRefused, Neutral::kEmpty, kTextOnly},
    {"multi_modal_data", kRefused, Neutral::kEmpty, kTextOnly},
    {"web_search_options", kRefused, Neutral::kNothing, "nothing is searched: put what was found into messages"},
    {"search_parameters", kRefused, Neutral::kNothing, "nothing is searched: put what was found into messages"},
    {"safe_prompt", kNoted, Neutral::kFalse},
    {"mm_processor_kwargs", Tier::kHarmless},
    {"media_io_kwargs", Tier::kHarmless},
    {"return_mm_kwargs", Tier::kHarmless},
    {"images_config", Tier::kHarmless},
    {"video_config", Tier::kHarmless},
    {"use_audio_in_video", Tier::kHarmless},
    {"max_dynamic_patch", Tier::kHarmless},
    {"min_dynamic_patch", Tier::kHarmless},
    {"multi_modal_uuids", Tier::kHarmless},
    // What else the answer is to hold.
    {"skip_special_tokens", kRefused, Neutral::kTrue, "special tokens have no text: use return_token_ids"},
    {"spaces_between_special_tokens", Tier::kHarmless},
    {"prompt_logprobs", kRefused, Neutral::kNothing, "use echo and logprobs of /v1/completions"},
    {"return_tokens_as_token_ids", kRefused, Neutral::kFalse, kUseReturnIds},
    {"return_hidden_states", kRefused, Neutral::kFalse, "hidden states are not told"},
    {"logprob_token_ids", kRefused, Neutral::kEmpty, "use top_logprobs, or logprobs of /v1/completions"},
    {"token_ids_logprob", kRefused, Neutral::kEmpty, "use top_logprobs, or logprobs of /v1/completions"},
    {"return_logprob", kRefused, Neutral::kFalse, "use logprobs"},
    {"sampling_logprobs_mode", kRefused, Neutral::kNothing, "use logprobs_mode"},
    {"post_sampling_probs", kRefused, Neutral::kFalse, "use logprobs_mode: processed"},
    {"n_probs", kRefused, Neutral::kZero, "use logprobs"},
    {"echo", kRefused, Neutral::kFalse, "use /v1/completions", kChat | kInfill},
    {"top_logprobs", kRefused, Neutral::kZero, "use logprobs: N", kRaw},
    {"return_full_text", kRefused, Neutral::kFalse, "use echo"},
    {"response_fields", kNoted, Neutral::kEmpty},
    {"return_tokens", kNoted, Neutral::kFalse},
    {"return_prompt_token_ids", kNoted, Neutral::kFalse},
    {"return_prompt_text", kNoted, Neutral::kFalse},
    {"return_token_offsets", kNoted, Neutral::kFalse},
    {"return_weight_versions", kNoted, Neutral::kFalse},
    {"return_routed_experts", kNoted, Neutral::kFalse},
    {"routed_experts_prompt_start", kNoted, Neutral::kZero},
    {"routed_experts_start_len", kNoted, Neutral::kZero},
    {"return_cached_tokens_details", kNoted, Neutral::kFalse},
    {"return_spec_tokens_details", kNoted, Neutral::kFalse},
    {"return_meta_info", kNoted, Neutral::kFalse},
    {"return_input_ids_in_sglext", kNoted, Neutral::kFalse},
    {"return_output_ids_in_sglext", kNoted, Neutral::kFalse},
    {"return_sampling_mask", kNoted, Neutral::kFalse},
    {"return_flat_raw_output_top_logprobs", kNoted, Neutral::kFalse},
    {"return_flat_raw_top_logprobs_b64", Tier::kHarmless},
    {"timings_per_token", kNoted, Neutral::kFalse},
    {"return_progress", kNoted, Neutral::kFalse},
    {"usage", kNoted, Neutral::kNothing},
    {"stream_interval", Tier::kHarmless},
    {"sse_ping_interval", Tier::kHarmless},
    // Where and when it runs.
    {"priority", kRefused, Neutral::kZero, "use request_class"},
    {"extra_key", kRefused, Neutral::kEmpty, "use cache_salt"},
    {"lora_path", kRefused, Neutral::kEmpty, kNoAdapters},
    {"lora", kRefused, Neutral::kEmpty, kNoAdapters},
    {"adapter", kRefused, Neutral::kEmpty, kNoAdapters},
    {"lora_request", kRefused, Neutral::kNothing, kNoAdapters},
    {"draft_model", kRefused, Neutral::kNothing, "the server has the one of --draft-model: use speculative"},
    {"speculative_config", kRefused, Neutral::kNothing, "use speculative"},
    {"kv_transfer_params", kRefused, Neutral::kEmpty, kNoTransfer},
    {"ec_transfer_params", kRefused, Neutral::kEmpty, kNoTransfer},
    {"bootstrap_host", kRefused, Neutral::kNothing, kNoTransfer},
    {"bootstrap_port", kRefused, Neutral::kNothing, kNoTransfer},
    {"bootstrap_room", kRefused, Neutral::kNothing, kNoTransfer},
    {"options", kRefused, Neutral::kEmpty, kUnpack},
    {"sampling_params", kRefused, Neutral::kEmpty, kUnpack},
    {"parameters", kRefused, Neutral::kEmpty, kUnpack},
    {"extra_body", kRefused, Neutral::kEmpty, kUnpack},
    {"data_parallel_rank", Tier::kHarmless},
    {"routed_dp_rank", Tier::kHarmless},
    {"disagg_prefill_dp_rank", Tier::kHarmless},
    {"session_params", Tier::kHarmless},
    {"session_id", Tier::kHarmless},
    {"request_id", Tier::kHarmless},
    {"rid", Tier::kHarmless},
    {"custom_labels", Tier::kHarmless},
    {"ngram_corpus_id", Tier::kHarmless},
    {"cache_prompt", Tier::kHarmless},
    {"n_cache_reuse", Tier::kHarmless},
    {"id_slot", Tier::kHarmless},
    {"n_keep", Tier::kHarmless},
    {"n_discard", Tier::kHarmless},
    {"keep_alive", Tier::kHarmless},
    {"num_ctx", Tier::kHarmless},
    {"num_keep", Tier::kHarmless},
    {"num_batch", Tier::kHarmless},
    {"num_gpu", Tier::kHarmless},
    {"main_gpu", Tier::kHarmless},
    {"num_thread", Tier::kHarmless},
    {"low_vram", Tier::kHarmless},
    {"f16_kv", Tier::kHarmless},
    {"use_mmap", Tier::kHarmless},
    {"use_mlock", Tier::kHarmless},
    {"numa", Tier::kHarmless},
    {"vocab_only", Tier::kHarmless},
    {"logits_all", Tier::kHarmless},
    // Of others, of programs that keep books, and what OpenAI takes without effect here.
    {"vllm_xargs", kNoted, Neutral::kEmpty},
    {"custom_params", kNoted, Neutral::kEmpty},
    {"speed", kNoted, Neutral::kNothing},
    {"mode", kNoted, Neutral::kNothing},
    {"ext", kNoted, Neutral::kEmpty},
    {"task", kNoted, Neutral::kNothing},
    {"models", kNoted, Neutral::kEmpty},
    {"provider", kNoted, Neutral::kEmpty},
    {"transforms", kNoted, Neutral::kEmpty},
    {"plugins", kNoted, Neutral::kEmpty},
    {"image", kNoted, Neutral::kEmpty},  // of OpenAI: how images are kept in a context; no slip for `images`
    {"route", kNoted, Neutral::kNothing},
    {"user", Tier::kHarmless},
    {"metadata", Tier::kHarmless},
    {"store", Tier::kHarmless},
    {"verbosity", Tier::kHarmless},
    {"prediction", Tier::kHarmless, Neutral::kNothing, {}, kTokenize},
    {"moderation", Tier::kHarmless},
    {"prompt_cache_options", Tier::kHarmless},
    {"reasoning_effort", Tier::kHarmless, Neutral::kNothing, {}, kRaw | kTokenize},
    {"cache_control", Tier::kHarmless},
    {"context_management", Tier::kHarmless},
    {"container", Tier::kHarmless},
    {"betas", Tier::kHarmless},
};

using Index = std::unordered_map<std::string_view, const KnownField*>;

const Index& index() {
  static const Index built = [] {
    Index all;
    for (const KnownField& field : kKnown) all.emplace(field.name, &field);
    return all;
  }();
  return built;
}

const KnownField* find_known(std::string_view name, Endpoint endpoint) {
  const auto found = index().find(name);
  const bool is_here = found != index().end() && (found->second->endpoints & static_cast<uint8_t>(endpoint)) != 0;
  return is_here ? found->second : nullptr;
}

std::string_view neutral_text(Neutral neutral) {
  switch (neutral) {
    case Neutral::kNothing:
      return "nothing";
    case Neutral::kFalse:
    case Neutral::kOff:
      return "false or nothing";
    case Neutral::kTrue:
      return "true or nothing";
    case Neutral::kZero:
      return "0 or nothing";
    case Neutral::kOne:
      return "1 or nothing";
    case Neutral::kMinusOne:
      return "-1 or nothing";
    case Neutral::kEmpty:
      return "nothing or an empty value";
  }
  return "nothing";
}

bool is_empty(const json::value& value) {
  return (value.is_string() && value.get_string().empty()) || (value.is_array() && value.get_array().empty()) ||
         (value.is_object() && value.get_object().empty());
}
bool equals(const json::value& value, double number) {
  return value.is_number() && value.to_number<double>() == number;
}

// Those that a slip may stand for: read by the endpoint, or refused by it.
std::string_view meant_name(std::string_view name, const Fields& fields, Endpoint endpoint) {
  for (const std::string_view known : fields.known())
    if (looks_like(name, known)) return known;
  for (const KnownField& field : kKnown)
    if (field.tier == kRefused && (field.endpoints & static_cast<uint8_t>(endpoint)) && looks_like(name, field.name))
      return field.name;
  return {};
}

bool judge_known(Fields& fields, const KnownField& field, const json::value& value) {
  if (field.tier == Tier::kHarmless || is_neutral(field.neutral, value)) return true;
  if (field.tier == kNoted) return false;
  fields.fail(field.name,
              fmt::format("not supported: expected {}, found {}; {}", neutral_text(field.neutral), describe(value),
                          field.instead),
              "unsupported");
  return true;
}

}  // namespace

size_t text_bytes_least(const json::value& value, size_t most) {
  size_t bytes = 1;
  if (const auto* text = value.if_string()) {
    bytes += text->size();
  } else if (const auto* array = value.if_array()) {
    for (const json::value& item : *array)
      if ((bytes += text_bytes_least(item, most)) > most) break;
  } else if (const auto* object = value.if_object()) {
    for (const auto& member : *object)
      if ((bytes += member.key().size() + text_bytes_least(member.value(), most)) > most) break;
  }
  return bytes;
}

std::span<const KnownField> known_fields() {
  return kKnown;
}

bool is_neutral(Neutral neutral, const json::value& value) {
  if (value.is_null()) return true;
  switch (neutral) {
    case Neutral::kNothing:
      return false;
    case Neutral::kFalse:
      return value == false;
    case Neutral::kTrue:
      return value == true;
    case Neutral::kZero:
      return equals(value, 0);
    case Neutral::kOne:
      return equals(value, 1);
    case Neutral::kMinusOne:
      return equals(value, -1);
    case Neutral::kEmpty:
      return is_empty(value);
    case Neutral::kOff:
      return value == false || equals(value, 0) || is_empty(value);
  }
  return false;
}

bool looks_like(std::string_view name, std::string_view known) {
  constexpr size_t kBytesMin = 4, kBytesMax = kIgnoredNameBytesMax;
  if (known.size() < kBytesMin || name.size() > kBytesMax || name == known) return false;
  const auto [short_one, long_one] = name.size() < known.size() ? std::pair(name, known) : std::pair(known, name);
  if (long_one.size() - short_one.size() <= 1) {
    size_t at = 0;
    while (at < short_one.size() && short_one[at] == long_one[at]) ++at;
    const std::string_view a = short_one.substr(at), b = long_one.substr(at);
    if (a.size() < b.size() ? a == b.substr(1) : a.substr(1) == b.substr(1)) return true;
    if (a.size() == b.size() && a.size() > 1 && a[0] == b[1] && a[1] == b[0] && a.substr(2) == b.substr(2)) return true;
  }
  const auto plain = [](std::string_view text) {
    std::string letters;
    for (const char c : text)
      if (c != '_' && c != '-') letters += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return letters;
  };
  return plain(name) == plain(known);
}

void add_ignored(std::vector<std::string>& ignored, std::string_view name) {
  if (ignored.size() >= kIgnoredNamesMax) return;
  std::string shown(name.substr(0, kIgnoredNameBytesMax));
  for (char& c : shown) {
    const bool is_plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
    if (!is_plain) c = '_';
  }
  if (shown.empty()) shown = "_";
  if (std::find(ignored.begin(), ignored.end(), shown) == ignored.end()) ignored.push_back(std::move(shown));
}

std::string join_ignored(const std::vector<std::string>& ignored) {
  std::string joined;
  for (const std::string& name : ignored) {
    if (!joined.empty()) joined += ", ";
    joined += name;
  }
  return joined;
}

void judge_rest(Fields& fields, Endpoint endpoint, bool strict, std::vector<std::string>& ignored) {
  if (fields.object().size() > kFieldsMax)
    fields.fail(
        invalid_field("body", fmt::format("expected at most {} fields, found {}", kFieldsMax, fields.object().size())));
  size_t all_bytes = 0;
  fields.for_each_unread([&](std::string_view name, const json::value& value) {
    const KnownField* known = find_known(name, endpoint);
    const bool passes = known && judge_known(fields, *known, value);
    if (fields.failed()) return;
    if (!known) {
      const std::string_view meant = meant_name(name, fields, endpoint);
      if (!meant.empty()) {
        fields.fail(shown_name(name), fmt::format("unknown field: did you mean {}?", meant), "unknown_field");
        return;
      }
    }
    if (!passes && strict) {
      fields.fail(shown_name(name), known ? "expected nothing: it has no effect here" : "unknown field",
                  known ? "unsupported" : "unknown_field");
      return;
    }
    const size_t bytes = text_bytes_least(value, kIdleFieldBytesMax);
    all_bytes += bytes;
    if (bytes > kIdleFieldBytesMax)
      fields.fail(shown_name(name), fmt::format("expected at most {} bytes in a field that has no effect, found more",
                                                kIdleFieldBytesMax));
    else if (all_bytes > kIdleFieldsBytesMax)
      fields.fail(
          shown_name(name),
          fmt::format("expected at most {} bytes in all fields that have no effect, found more", kIdleFieldsBytesMax));
    if (!passes) add_ignored(ignored, name);
  });
}

}  // namespace llmrt::server
