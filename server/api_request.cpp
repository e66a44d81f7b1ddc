#include "server/api_request.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>

#include "core/text/detokenizer.h"
#include "server/bad_words.h"
#include "server/chat_messages.h"
#include "server/fields.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;
using Int64Limits = std::numeric_limits<int64_t>;

constexpr double kTopPMin = 1e-9;  // only to keep 0 out
constexpr size_t kBadWordBytesMax = 256;
constexpr size_t kHintBytesMax = 1024;

const auto kNever = [](const json::value&) { return false; };
const auto kIsEmpty = [](const json::value& value) {
  return (value.is_array() && value.get_array().empty()) || (value.is_string() && value.get_string().empty()) ||
         (value.is_object() && value.get_object().empty());
};
std::function<bool(const json::value&)> is_number(double neutral) {
  return [neutral](const json::value& value) { return value.is_number() && value.to_number<double>() == neutral; };
}
std::function<bool(const json::value&)> is_bool(bool neutral) {
  return [neutral](const json::value& value) { return value.is_bool() && value.get_bool() == neutral; };
}
std::function<bool(const json::value&)> is_one_of(std::vector<std::string_view> neutral) {
  return [neutral = std::move(neutral)](const json::value& value) {
    if (value.is_string())
      for (std::string_view name : neutral)
        if (value.get_string() == name) return true;
    return false;
  };
}

// Everything that both endpoints share, but prompt and length.
struct Shared {
  AnswerForm form;
  SamplingParams sampling;
  StopParams stop;
  std::optional<BeamParams> beam;
  bool has_seed = false;
  uint32_t min_tokens = 0, deadline_ms = 0;
  RequestClass request_class = RequestClass::kInteractive;
  bool batch_invariant = false;
  std::string cache_salt;
};

// Whether the request names a seed.
bool read_sampling(Fields& fields, uint64_t random_seed, SamplingParams& sampling) {
  sampling.temperature = static_cast<float>(fields.number("temperature", 0, 100).value_or(1));
  // Logits divided by it would pass the range of a float; what is drawn is the best token long before.
  if (sampling.temperature < kTemperatureMin) sampling.temperature = 0;  // greedy
  sampling.top_p = static_cast<float>(fields.number("top_p", kTopPMin, 1).value_or(1));
  sampling.top_k = static_cast<uint32_t>(
      std::max<int64_t>(0, fields.integer("top_k", -1, std::numeric_limits<int32_t>::max()).value_or(0)));
  sampling.min_p = static_cast<float>(fields.number("min_p", 0, 1).value_or(0));
  sampling.presence_penalty = static_cast<float>(fields.number("presence_penalty", -2, 2).value_or(0));
  sampling.frequency_penalty = static_cast<float>(fields.number("frequency_penalty", -2, 2).value_or(0));
  sampling.repetition_penalty =
      static_cast<float>(fields.number("repetition_penalty", kRepetitionPenaltyMin, 10).value_or(1));
  const auto seed = fields.integer("seed", Int64Limits::min(), Int64Limits::max());
  sampling.seed = seed ? static_cast<uint64_t>(*seed) : random_seed;
  return seed.has_value();
}

void read_logit_bias(Fields& fields, uint32_t vocab_size, SamplingParams& sampling) {
  const json::object* biases = fields.object("logit_bias");
  if (!biases) return;
  if (biases->size() > kLogitBiasMax)
    fields.fail("logit_bias", fmt::format("expected at most {} tokens, found {}", kLogitBiasMax, biases->size()));
  for (const auto& entry : *biases) {
    const std::string_view key(entry.key());
    int32_t token = -1;
    std::from_chars(key.data(), key.data() + key.size(), token);
    // Spelled as we would spell it, so that no token has two keys: not "01", "-0", "1x".
    if (token < 0 || static_cast<uint32_t>(token) >= vocab_size || key != fmt::to_string(token)) {
      fields.fail("logit_bias",
                  fmt::format("expected token ids in [0, {}) as keys, found '{}'", vocab_size, shown_name(key)));
      return;
    }
    const double bias = entry.value().is_number() ? entry.value().to_number<double>() : 1e9;
    if (!(bias >= -100 && bias <= 100)) {
      fields.fail("logit_bias",
                  fmt::format("token {}: expected a number in [-100, 100], found {}", token, describe(entry.value())));
      return;
    }
    sampling.logit_bias.emplace_back(token, static_cast<float>(bias));
  }
}

// An array of token ids, each inside the vocabulary.
std::vector<int32_t> read_ids(Fields& fields, std::string_view name, const json::array& array, uint32_t vocab_size) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const json::value& value : array) {
    json::error_code error;
    const int64_t id = value.is_number() ? value.to_number<int64_t>(error) : -1;
    if (error || id < 0 || id >= static_cast<int64_t>(vocab_size)) {
      fields.fail(name, fmt::format("expected token ids in [0, {}), found {}", vocab_size, describe(value)));
      return {};
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

// Whether log-probabilities are of the processed distribution.
bool read_logprobs_mode(Fields& fields) {
  const std::string mode = fields.string("logprobs_mode", 64).value_or("raw");
  if (mode != "raw" && mode != "processed")
    fields.fail("logprobs_mode", fmt::format("expected \"raw\" or \"processed\", found \"{}\"", shown_name(mode)));
  return mode == "processed";
}

// Strings, or token sequences.
void read_bad_words(Fields& fields, const ServedModel& model, SamplingParams& sampling) {
  const json::array* words = fields.array("bad_words", kBadWordsMax);
  if (!words) return;
  for (const json::value& word : *words) {
    if (fields.failed()) return;
    if (word.is_array() && !word.get_array().empty()) {
      sampling.bad_words.push_back(read_ids(fields, "bad_words", word.get_array(), model.vocab_size));
    } else if (!word.is_string() || word.get_string().empty() || word.get_string().size() > kBadWordBytesMax) {
      fields.fail("bad_words", fmt::format("expected strings of 1 to {} bytes or lists of token ids, found {}",
                                           kBadWordBytesMax, describe(word)));
    } else if (!model.tokenizer) {
      fields.fail("bad_words", "this model has no tokenizer: expected lists of token ids", "unsupported");
    } else {
      for (std::vector<int32_t>& ids : spellings(*model.tokenizer, word.get_string()))
        sampling.bad_words.push_back(std::move(ids));
    }
  }
  size_t num_tokens = 0;
  for (const std::vector<int32_t>& ids : sampling.bad_words) num_tokens += ids.size();
  if (sampling.bad_words.size() > kBadWordsMax || num_tokens > kBadWordTokensMax)
    fields.fail("bad_words", fmt::format("expected at most {} token sequences of {} tokens in all, found {} of {}",
                                         kBadWordsMax, kBadWordTokensMax, sampling.bad_words.size(), num_tokens));
}

void read_stop(Fields& fields, const ServedModel& model, StopParams& stop) {
  const auto add = [&](const json::value& value) {
    if (!value.is_string() || value.get_string().empty() || value.get_string().size() > kStopBytesMax)
      fields.fail("stop", fmt::format("expected strings of 1 to {} bytes, found {}", kStopBytesMax, describe(value)));
    else
      stop.strings.emplace_back(value.get_string());
  };
  if (const json::value* value = fields.any("stop")) {
    if (!value->is_array())
      add(*value);
    else if (value->get_array().size() > kStopStringsMax)
      fields.fail("stop", fmt::format("expected at most {} strings, found {}", kStopStringsMax, describe(*value)));
    else
      for (const json::value& one : value->get_array()) add(one);
  }
  if (!stop.strings.empty() && !model.tokenizer)
    fields.fail("stop", "this model has no tokenizer: expected stop_token_ids", "unsupported");
  if (const json::array* ids = fields.array("stop_token_ids", kStopTokensMax))
    stop.token_ids = read_ids(fields, "stop_token_ids", *ids, model.vocab_size);
  stop.include_string = fields.boolean("include_stop_str_in_output").value_or(false);
  stop.ignore_eos = fields.boolean("ignore_eos").value_or(false);
}

void read_stream(Fields& fields, AnswerForm& form) {
  form.stream = fields.boolean("stream").value_or(false);
  const json::object* options = fields.object("stream_options");
  if (!options) return;
  if (!form.stream) fields.fail("stream_options", "expected only together with stream: true");
  Fields inner(*options, "stream_options.");
  form.include_usage = inner.boolean("include_usage").value_or(false);
  form.continuous_usage = inner.boolean("continuous_usage_stats").value_or(false);
  if (form.continuous_usage && !form.include_usage)
    inner.fail("continuous_usage_stats", "expected only together with include_usage: true");
  inner.neutral("include_obfuscation", is_bool(false), "false");
  if (const auto& error = inner.finish()) fields.fail(*error);
}

// How many choices, and which of them. The mean log-probability decides, so the core is asked for them.
void read_best_of(Fields& fields, AnswerForm& form, SamplingParams& sampling) {
  form.best_of = static_cast<uint32_t>(fields.integer("best_of", 1, kChoicesMax).value_or(form.n));
  if (form.best_of < form.n)
    fields.fail("best_of", fmt::format("expected at least n = {}, found {}", form.n, form.best_of));
  if (form.best_of == form.n || form.beams) return;
  if (form.stream)
    fields.fail("best_of",
                fmt::format("which are the best is known only at the end: with stream expected n = {}, found {}",
                            form.n, form.best_of));
  sampling.logprobs = std::max(0, sampling.logprobs);
}

// Beam search: best_of (or n) is the width.
void read_beams(Fields& fields, Shared& shared) {
  shared.form.beams = fields.boolean("use_beam_search").value_or(false);
  if (!shared.form.beams) {
    fields.neutral("length_penalty", is_number(1), "1");
    fields.neutral("early_stopping", is_bool(false), "false");
    return;
  }
  shared.beam = BeamParams{.length_penalty = static_cast<float>(fields.number("length_penalty", -10, 10).value_or(1)),
                           .early_stopping = fields.boolean("early_stopping").value_or(false)};
  if (shared.form.stream) fields.fail("use_beam_search", "the answers are known only at the end: expected no stream");
}

// The class by our own name, or by the tier that stands for it.
RequestClass read_class(Fields& fields) {
  constexpr size_t kNameBytesMax = 64;
  const auto tier = fields.string("service_tier", kNameBytesMax).value_or("auto");
  if (tier != "auto" && tier != "default" && tier != "priority" && tier != "flex")
    fields.fail("service_tier", fmt::format("expected auto, default, priority or flex, found '{}'", shown_name(tier)));
  const auto name = fields.string("request_class", kNameBytesMax);
  if (!name) return tier == "flex" ? RequestClass::kBatch : RequestClass::kInteractive;
  const auto request_class = parse_request_class(*name);
  if (!request_class)
    fields.fail("request_class", fmt::format("expected interactive, agent, batch, evaluation or background, found '{}'",
                                             shown_name(*name)));
  return request_class.value_or(RequestClass::kInteractive);
}

// Fields that others know, at the value that changes nothing.
void read_neutral(Fields& fields) {
  for (const char* name : {"user", "metadata", "store"}) fields.ignore(name);
  // The cache key is no salt: it would keep apart what the prefix cache finds by itself.
  for (const char* name : {"safety_identifier", "prompt_cache_key", "prompt_cache_retention"})
    fields.string(name, kHintBytesMax);
  fields.neutral("skip_special_tokens", is_bool(true), "true");
  fields.neutral("spaces_between_special_tokens", is_bool(true), "true");
  fields.neutral(
      "response_format",
      [](const json::value& value) {
        const json::object* object = value.if_object();
        const json::value* type = object && object->size() == 1 ? object->if_contains("type") : nullptr;
        return type && type->is_string() && type->get_string() == "text";
      },
      "{\"type\": \"text\"}");
  fields.neutral("priority", is_number(0), "0");
  fields.neutral("prompt_logprobs", kNever, "null");
  fields.neutral("return_tokens_as_token_ids", is_bool(false), "false");
  for (const char* name : {"structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
                           "allowed_token_ids", "truncate_prompt_tokens", "logits_processors"})
    fields.neutral(name, kNever, "null");
}

void read_neutral_chat(Fields& fields) {
  fields.neutral("tool_choice", is_one_of({"none", "auto"}), "none or auto");
  fields.neutral("functions", kIsEmpty, "[]");
  fields.neutral("function_call", is_one_of({"none", "auto"}), "none or auto");
  fields.neutral(
      "parallel_tool_calls", [](const json::value& value) { return value.is_bool(); }, "true or false");
  fields.neutral(
      "modalities",
      [](const json::value& value) {
        return value.is_array() && value.get_array().size() == 1 && value.get_array()[0] == "text";
      },
      "[\"text\"]");
  fields.neutral("verbosity", is_one_of({"medium"}), "medium");
  fields.neutral("echo", is_bool(false), "false");
  fields.neutral("best_of", is_number(1), "1");
  for (const char* name : {"reasoning_effort", "prediction", "audio", "web_search_options"})
    fields.neutral(name, kNever, "null");
}

Shared read_shared(Fields& fields, const ServedModel& model, uint64_t random_seed) {
  Shared shared;
  check_model_name(fields, model);
  shared.has_seed = read_sampling(fields, random_seed, shared.sampling);
  read_logit_bias(fields, model.vocab_size, shared.sampling);
  read_bad_words(fields, model, shared.sampling);
  shared.sampling.processed_logprobs = read_logprobs_mode(fields);
  shared.sampling.no_repeat_ngram_size =
      static_cast<uint32_t>(fields.integer("no_repeat_ngram_size", 0, kNoRepeatNgramMax).value_or(0));
  read_stop(fields, model, shared.stop);
  read_stream(fields, shared.form);
  shared.form.n = shared.form.best_of = static_cast<uint32_t>(fields.integer("n", 1, kChoicesMax).value_or(1));
  read_beams(fields, shared);
  read_neutral(fields);
  shared.form.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  shared.min_tokens = static_cast<uint32_t>(fields.integer("min_tokens", 0, 1 << 30).value_or(0));
  shared.request_class = read_class(fields);
  shared.batch_invariant = fields.boolean("batch_invariant").value_or(false);
  shared.deadline_ms = static_cast<uint32_t>(fields.integer("deadline_ms", 1, 1 << 30).value_or(0));
  shared.cache_salt = fields.string("cache_salt", kCacheSaltBytesMax).value_or("");
  return shared;
}

// `max_tokens`: what the client wants, or all that the context leaves.
Request make_request(Fields& fields, const Shared& shared, const ServedModel& model, std::vector<int32_t> prompt,
                     std::optional<int64_t> max_tokens) {
  Request request;
  const int64_t context = model.context_max, length = static_cast<int64_t>(prompt.size());
  const int64_t wanted = max_tokens.value_or(std::max<int64_t>(1, context - length));
  if (length + wanted > context) {
    fields.fail(invalid_field(
        shared.form.chat ? "messages" : "prompt",
        fmt::format("this model's maximum context length is {} tokens, {} were requested: {} in the prompt, {} in the "
                    "answer",
                    context, length + wanted, length, wanted),
        "context_length_exceeded"));
  }
  if (shared.min_tokens > wanted)
    fields.fail("min_tokens", fmt::format("expected at most max_tokens = {}, found {}", wanted, shared.min_tokens));
  request.prompt = std::move(prompt);
  request.n = shared.form.best_of;
  request.sampling = shared.sampling;
  request.stop = shared.stop;
  request.beam = shared.beam;
  request.max_tokens = static_cast<uint32_t>(wanted);
  request.min_tokens = shared.min_tokens;
  request.route = shared.form.chat ? Route::kChat : Route::kCompletion;
  request.request_class = shared.request_class;
  request.batch_invariant = shared.batch_invariant;
  request.deadline_ms = shared.deadline_ms;
  request.cache_salt = shared.cache_salt;
  if (!request.beam || fields.failed()) return request;
  if (const Status status = validate(request, model.vocab_size); !status) {  // says what does not go together with it
    ApiError error = to_api_error(status.error());
    error.param = "use_beam_search";
    fields.fail(std::move(error));
  }
  return request;
}

bool is_ids(const json::array& array) {
  return !array.empty() && array[0].is_number();
}

size_t num_not_echoed(const Tokenizer& tokenizer, std::span<const int32_t> prompt, std::string_view text) {
  CharacterCount spelled, shown;
  for (const int32_t token : prompt) spelled.push(tokenizer.token_bytes(token, true));
  shown.push(text);
  return spelled.value() - std::min(spelled.value(), shown.value());
}

// A string, token ids, or up to 128 of either.
std::vector<PromptRequest> read_prompts(Fields& fields, const ServedModel& model, bool echo) {
  std::vector<PromptRequest> prompts;
  EncodeOptions options;
  options.add_bos = fields.boolean("add_special_tokens").value_or(true);
  const auto add = [&](const json::value& value) {
    PromptRequest prompt;
    if (value.is_string() && !model.tokenizer) {
      fields.fail("prompt", "this model has no tokenizer: expected token ids, found a string", "unsupported");
    } else if (value.is_string()) {
      const std::string_view text(value.get_string());
      if (!check_text_bytes(fields, model, "prompt", text.size())) return;
      prompt.request.prompt = model.tokenizer->encode(text, options);
      if (echo) {
        prompt.echo_text = text;
        prompt.num_not_echoed = num_not_echoed(*model.tokenizer, prompt.request.prompt, text);
      }
    } else if (value.is_array()) {
      prompt.request.prompt = read_ids(fields, "prompt", value.get_array(), model.vocab_size);
      if (echo && model.tokenizer) prompt.echo_text = model.tokenizer->decode(prompt.request.prompt, /*special=*/true);
    } else {
      fields.fail("prompt", fmt::format("expected a string or token ids, found {}", describe(value)));
    }
    if (prompt.request.prompt.empty()) fields.fail("prompt", "expected at least one token, found none");
    prompts.push_back(std::move(prompt));
  };
  const json::value* value = fields.any("prompt");
  if (!value) {
    fields.fail("prompt", "expected a string or token ids, found nothing");
  } else if (!value->is_array() || is_ids(value->get_array())) {
    add(*value);
  } else if (value->get_array().empty() || value->get_array().size() > kPromptsMax) {
    fields.fail("prompt", fmt::format("expected 1 to {} prompts, found {}", kPromptsMax, value->get_array().size()));
  } else {
    for (const json::value& one : value->get_array()) {
      if (fields.failed()) break;
      add(one);
    }
  }
  return prompts;
}

}  // namespace

void check_model_name(Fields& fields, const ServedModel& model) {
  const auto name = fields.string("model", 4096);
  if (!name || *name == model.id) return;
  ApiError error = invalid_field(
      "model", fmt::format("not found: expected '{}', found '{}'", model.id, shown_name(*name)), "model_not_found");
  error.status = 404;
  fields.fail(std::move(error));
}

size_t text_bytes_max(const ServedModel& model) {
  if (!model.tokenizer) return 0;
  const Vocabulary& vocabulary = model.tokenizer->vocabulary();
  const auto longest = [&](auto num_bytes) {
    size_t most = 1;
    for (TokenId id = 0; id < model.tokenizer->vocab_size(); ++id) most = std::max(most, num_bytes(id));
    return most;
  };
  // Each token stands for some bytes of the text, normalised: that may make nine bytes of a Hangul syllable three.
  if (vocabulary.model == "gpt2")
    return 3 * longest([&](TokenId id) { return model.tokenizer->token_bytes(id, true).size(); }) * model.context_max;
  if (vocabulary.model != "llama") return 0;
  std::set<std::string_view> bytes;
  for (TokenId id = 0; id < model.tokenizer->vocab_size() && !vocabulary.types.empty(); ++id)
    if (vocabulary.types[static_cast<size_t>(id)] == TokenType::kByte)
      bytes.insert(model.tokenizer->token_bytes(id, true));
  if (bytes.size() < 256) return 0;
  // A text may spell the mark for a space, three bytes, as it stands in the vocabulary.
  return longest([&](TokenId id) { return vocabulary.tokens[static_cast<size_t>(id)].size(); }) * model.context_max;
}

bool check_text_bytes(Fields& fields, const ServedModel& model, std::string_view name, size_t num_bytes) {
  if (model.text_bytes_max == 0 || num_bytes <= model.text_bytes_max) return true;
  fields.fail(invalid_field(
      std::string(name),
      fmt::format("this model's maximum context length is {} tokens: expected a text of at most {} bytes, found {}",
                  model.context_max, model.text_bytes_max, num_bytes),
      "context_length_exceeded"));
  return false;
}

ApiResult<ApiRequest> parse_chat(const json::object& body, const ServedModel& model, uint64_t random_seed) {
  Fields fields(body);
  Shared shared = read_shared(fields, model, random_seed);
  shared.form.chat = true;
  read_neutral_chat(fields);
  const bool logprobs = fields.boolean("logprobs").value_or(false);
  const auto top_logprobs = fields.integer("top_logprobs", 0, kTopLogprobsMax);
  if (top_logprobs.value_or(0) > 0 && !logprobs)
    fields.fail("top_logprobs", "expected only together with logprobs: true");
  if (logprobs) shared.form.logprobs = static_cast<int>(top_logprobs.value_or(0));
  shared.sampling.logprobs = shared.form.logprobs;
  const auto old_name = fields.integer("max_tokens", 1, 1 << 30);
  const auto new_name = fields.integer("max_completion_tokens", 1, 1 << 30);
  if (old_name && new_name && *old_name != *new_name)
    fields.fail("max_completion_tokens",
                fmt::format("expected the same as max_tokens = {}, found {}", *old_name, *new_name));

  std::vector<int32_t> prompt = read_chat_prompt(fields, model);
  if (const auto& error = fields.finish()) return *error;
  if (prompt.empty()) return invalid_field("messages", "expected at least one token, found none");
  ApiRequest out{shared.form, {}};
  out.prompts.push_back({make_request(fields, shared, model, std::move(prompt), new_name ? new_name : old_name), ""});
  if (const auto& error = fields.finish()) return *error;
  return out;
}

ApiResult<ApiRequest> parse_completion(const json::object& body, const ServedModel& model, uint64_t random_seed) {
  Fields fields(body);
  Shared shared = read_shared(fields, model, random_seed);
  shared.form.echo = fields.boolean("echo").value_or(false);
  shared.form.logprobs = static_cast<int>(fields.integer("logprobs", 0, kTopLogprobsMax).value_or(-1));
  shared.sampling.logprobs = shared.form.logprobs;
  shared.sampling.prompt_logprobs = shared.form.echo && shared.form.logprobs >= 0;
  read_best_of(fields, shared.form, shared.sampling);
  fields.neutral("suffix", kIsEmpty, "an empty string");
  int64_t max_tokens = fields.integer("max_tokens", 0, 1 << 30).value_or(16);
  if (max_tokens == 0 && !shared.form.echo)
    fields.fail("max_tokens", "expected at least 1 (or 0 together with echo), found 0");
  // Without log-probabilities there would be nothing to compute; the engine's name for that is prompt
  // log-probabilities.
  if (max_tokens == 0) shared.sampling.prompt_logprobs = true;
  if (max_tokens == 0 && shared.sampling.logprobs < 0) shared.sampling.logprobs = 0;

  ApiRequest out{shared.form, read_prompts(fields, model, shared.form.echo)};
  if (out.prompts.size() * out.form.best_of > kChoicesMax)
    fields.fail(out.form.best_of == out.form.n ? "n" : "best_of",
                fmt::format("expected at most {} choices in all, found {} for each of {} prompts", kChoicesMax,
                            out.form.best_of, out.prompts.size()));
  if (const auto& error = fields.finish()) return *error;
  for (PromptRequest& prompt : out.prompts) {
    prompt.request = make_request(fields, shared, model, std::move(prompt.request.prompt), max_tokens);
    // Prompts draw apart; those of a seed that was asked for each as if alone.
    if (!shared.has_seed) ++shared.sampling.seed;
  }
  if (const auto& error = fields.finish()) return *error;
  return out;
}

}  // namespace llmrt::server
