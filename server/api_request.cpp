#include "server/api_request.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <set>
#include <utility>

#include "core/base/keyed_hash.h"
#include "core/text/detokenizer.h"
#include "server/bad_words.h"
#include "server/chat_messages.h"
#include "server/fields.h"
#include "server/fill_in_middle.h"
#include "server/known_fields.h"
#include "server/prompt_tokens.h"
#include "server/structure_source.h"
#include "server/thinking.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;
using Int64Limits = std::numeric_limits<int64_t>;

constexpr size_t kBadWordBytesMax = 256;
constexpr size_t kHintBytesMax = 1024;

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

std::optional<double> read_number(Fields& fields, const SamplingParameter& parameter) {
  if (!parameter.is_whole()) return fields.number(parameter.name, parameter.low, parameter.high);
  const std::optional<int64_t> whole =
      fields.integer(parameter.name, static_cast<int64_t>(parameter.low), static_cast<int64_t>(parameter.high));
  return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
}

// Whether the request names a seed.
bool read_sampling(Fields& fields, uint64_t random_seed, SamplingParams& sampling) {
  for (const SamplingParameter& parameter : kSamplingParameters)
    parameter.set(read_number(fields, parameter).value_or(parameter.neutral), &sampling);
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

// A stop string that spells a special token, which is no text, stops where the token is drawn.
void add_special_stops(const Vocabulary& vocabulary, StopParams& stop) {
  if (stop.strings.empty()) return;
  const KeyedViewSet spelled(stop.strings.begin(), stop.strings.end());
  for (size_t id = 0; id < vocabulary.types.size(); ++id) {
    if (vocabulary.types[id] != TokenType::kControl || !spelled.contains(vocabulary.tokens[id])) continue;
    const auto token = static_cast<int32_t>(id);
    if (std::find(stop.token_ids.begin(), stop.token_ids.end(), token) == stop.token_ids.end())
      stop.token_ids.push_back(token);
  }
}

// An empty string stops nothing.
void read_stop(Fields& fields, const ServedModel& model, StopParams& stop) {
  size_t num_bytes = 0;
  const auto add = [&](const json::value& value) {
    if (!value.is_string() || value.get_string().size() > kStopStringBytesMax)
      return fields.fail(
          "stop", fmt::format("expected strings of at most {} bytes, found {}", kStopStringBytesMax, describe(value)));
    num_bytes += value.get_string().size();
    if (!value.get_string().empty()) stop.strings.emplace_back(value.get_string());
  };
  if (const json::value* value = fields.any("stop")) {
    if (!value->is_array())
      add(*value);
    else if (value->get_array().size() > kStopStringsMax)
      fields.fail("stop", fmt::format("expected at most {} strings, found {}", kStopStringsMax, describe(*value)));
    else
      for (const json::value& one : value->get_array()) add(one);
  }
  if (num_bytes > kStopBytesMax)
    fields.fail("stop", fmt::format("expected at most {} bytes in all, found {}", kStopBytesMax, num_bytes));
  if (!stop.strings.empty() && !model.tokenizer)
    fields.fail("stop", "this model has no tokenizer: expected stop_token_ids", "unsupported");
  if (const json::array* ids = fields.array("stop_token_ids", kStopTokensMax))
    stop.token_ids = read_ids(fields, "stop_token_ids", *ids, model.vocab_size);
  stop.include_string = fields.boolean("include_stop_str_in_output").value_or(false);
  stop.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  if (fields.failed() || !model.tokenizer) return;
  add_special_stops(model.tokenizer->vocabulary(), stop);
  if (stop.token_ids.size() > kStopTokensMax)
    fields.fail("stop",
                fmt::format("expected at most {} stop tokens, found {} with the special tokens that stop spells",
                            kStopTokensMax, stop.token_ids.size()));
}

void read_stream(Fields& fields, bool strict, AnswerForm& form) {
  form.stream = fields.boolean("stream").value_or(false);
  const json::object* options = fields.object("stream_options");
  if (!options) return;
  Fields inner(*options, "stream_options.");
  form.include_usage = inner.boolean("include_usage").value_or(false);
  form.continuous_usage = inner.boolean("continuous_usage_stats").value_or(false);
  if (form.continuous_usage && !form.include_usage)
    inner.fail("continuous_usage_stats", "expected only together with include_usage: true");
  inner.boolean("include_obfuscation");  // padding against who listens: there is none
  if (strict) inner.refuse_unread();
  if (inner.error()) fields.fail(*inner.error());
}

// -1: what the context leaves.
std::optional<int64_t> read_max_tokens(Fields& fields, std::string_view name, int64_t min, int64_t max) {
  const json::value* value = fields.any(name);
  if (value && value->is_number() && value->to_number<double>() == -1) return -1;
  return fields.integer(name, min, max);
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

// The class by our own name, in the body or in a header, or by the tier that stands for it.
RequestClass read_class(Fields& fields, std::string_view from_header) {
  constexpr size_t kNameBytesMax = 64;
  const auto tier = fields.string("service_tier", kNameBytesMax).value_or("auto");
  if (!is_one_of({"auto", "default", "priority", "scale", "flex"})(json::value(tier)))
    fields.fail("service_tier",
                fmt::format("expected auto, default, priority, scale or flex, found '{}'", shown_name(tier)));
  const auto in_body = fields.string("request_class", kNameBytesMax);
  if (!in_body && from_header.empty()) return tier == "flex" ? RequestClass::kBatch : RequestClass::kInteractive;
  const std::string_view name = in_body ? std::string_view(*in_body) : from_header;
  const auto request_class = parse_request_class(name);
  if (!request_class)
    fields.fail(
        in_body ? "request_class" : "x-request-class",
        fmt::format("expected interactive, agent, batch, evaluation or background, found '{}'", shown_name(name)));
  return request_class.value_or(RequestClass::kInteractive);
}

std::string read_salt(Fields& fields, std::string_view from_header) {
  if (auto salt = fields.string("cache_salt", kCacheSaltBytesMax)) return *salt;
  if (from_header.size() > kCacheSaltBytesMax)
    fields.fail("x-cache-salt",
                fmt::format("expected at most {} bytes, found {}", kCacheSaltBytesMax, from_header.size()));
  return std::string(from_header);
}

// Fields that others know, at the value that changes nothing. Most are in server/known_fields.h; these have values of
// their own.
void read_neutral(Fields& fields) {
  // The cache key is no salt: it would keep apart what the prefix cache finds by itself.
  for (const char* name : {"safety_identifier", "prompt_cache_key", "prompt_cache_retention"})
    fields.string(name, kHintBytesMax);
}

void read_neutral_chat(Fields& fields) {
  fields.neutral(
      "modalities",
      [](const json::value& value) {
        return value.is_array() && value.get_array().size() == 1 && value.get_array()[0] == "text";
      },
      "[\"text\"]");
}

Shared read_shared(Fields& fields, const ServedModel& model, const ParseContext& context) {
  Shared shared;
  check_model_name(fields, model);
  shared.has_seed = read_sampling(fields, context.random_seed, shared.sampling);
  read_logit_bias(fields, model.vocab_size, shared.sampling);
  read_bad_words(fields, model, shared.sampling);
  shared.sampling.processed_logprobs = read_logprobs_mode(fields);
  read_stop(fields, model, shared.stop);
  read_stream(fields, context.strict_fields, shared.form);
  shared.form.n = shared.form.best_of = static_cast<uint32_t>(fields.integer("n", 1, kChoicesMax).value_or(1));
  read_beams(fields, shared);
  read_neutral(fields);
  shared.form.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  shared.min_tokens = static_cast<uint32_t>(fields.integer("min_tokens", 0, 1 << 30).value_or(0));
  shared.request_class = read_class(fields, context.request_class);
  shared.batch_invariant = fields.boolean("batch_invariant").value_or(false);
  shared.deadline_ms = static_cast<uint32_t>(fields.integer("deadline_ms", 1, 1 << 30).value_or(0));
  shared.cache_salt = read_salt(fields, context.cache_salt);
  return shared;
}

// How many tokens the answer may have: `max_tokens` (-1 = what the context leaves), or less where the context leaves
// less. 0 where it leaves none, unless none is wanted; fields.failed() then.
uint32_t room_for_answer(Fields& fields, const Shared& shared, const ServedModel& model, size_t prompt_tokens,
                         int64_t max_tokens) {
  const int64_t left = int64_t{model.context_max} - static_cast<int64_t>(prompt_tokens);
  if (left < std::min<int64_t>(std::abs(max_tokens), 1)) {
    fields.fail(too_long(model, shared.form.chat ? "messages" : "prompt", prompt_tokens, /*at_least=*/false,
                         std::min<int64_t>(std::abs(max_tokens), 1)));
    return 0;
  }
  return static_cast<uint32_t>(max_tokens < 0 ? left : std::min(max_tokens, left));
}

Request make_request(Fields& fields, const Shared& shared, const ServedModel& model, std::vector<int32_t> prompt,
                     int64_t max_tokens) {
  Request request;
  const uint32_t wanted = room_for_answer(fields, shared, model, prompt.size(), max_tokens);
  if (shared.min_tokens > wanted)
    fields.fail("min_tokens", fmt::format("expected at most max_tokens or what the context leaves = {}, found {}",
                                          wanted, shared.min_tokens));
  request.prompt = std::move(prompt);
  request.n = shared.form.best_of;
  request.sampling = shared.sampling;
  request.stop = shared.stop;
  request.beam = shared.beam;
  request.max_tokens = wanted;
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

// A string, token ids, or up to 128 of either: each checked here, and none read yet.
std::vector<const json::value*> find_prompts(Fields& fields, const ServedModel& model) {
  std::vector<const json::value*> found;
  const auto add = [&](const json::value& value) {
    if (value.is_string() && !model.tokenizer)
      fields.fail("prompt", "this model has no tokenizer: expected token ids, found a string", "unsupported");
    else if (value.is_string())
      check_text_bytes(fields, model, "prompt", value.get_string().size());
    else if (!value.is_array())
      fields.fail("prompt", fmt::format("expected a string or token ids, found {}", describe(value)));
    else if (value.get_array().size() > model.context_max)
      fields.fail(too_long(model, "prompt", value.get_array().size(), /*at_least=*/false, 0));
    found.push_back(&value);
  };
  const json::value* value = fields.any("prompt");
  if (!value) {
    fields.fail("prompt", "expected a string or token ids, found nothing");
  } else if (!value->is_array() || is_ids(value->get_array())) {
    add(*value);
  } else if (value->get_array().empty() || value->get_array().size() > kPromptsMax) {
    fields.fail("prompt", fmt::format("expected 1 to {} prompts, found {}", kPromptsMax, value->get_array().size()));
  } else {
    for (const json::value& one : value->get_array()) add(one);
  }
  return found;
}

// The checked prompts as tokens; up to the first that is wrong.
std::vector<PromptRequest> read_prompts(Fields& fields, const ServedModel& model, const ParseContext& context,
                                        std::span<const json::value* const> values, bool add_bos, bool echo,
                                        const std::optional<std::vector<int32_t>>& suffix) {
  std::vector<PromptRequest> prompts;
  for (const json::value* value : values) {
    if (context.is_cancelled()) fields.fail(client_has_gone());
    if (fields.failed()) break;
    PromptRequest prompt;
    if (suffix) {
      FillIn wanted{.prefix = {}, .suffix = *suffix};
      wanted.prefix = value->is_string()
                          ? encode_plain(fields, model, context, "prompt", std::string_view(value->get_string()))
                          : read_ids(fields, "prompt", value->get_array(), model.vocab_size);
      bool is_cut = false;
      if (!fields.failed())
        prompt.request.prompt = fill_in_prompt(fields, model, context, "prompt", wanted, add_bos, &is_cut);
    } else if (value->is_string()) {
      const std::string_view text(value->get_string());
      prompt.request.prompt = encode_prompt(fields, model, context, "prompt", text, add_bos);
      if (echo) {
        prompt.echo_text = text;
        prompt.num_not_echoed = num_not_echoed(*model.tokenizer, prompt.request.prompt, text);
      }
    } else {
      prompt.request.prompt = read_ids(fields, "prompt", value->get_array(), model.vocab_size);
      if (echo && model.tokenizer) prompt.echo_text = model.tokenizer->decode(prompt.request.prompt, /*special=*/true);
    }
    if (prompt.request.prompt.empty()) fields.fail("prompt", "expected at least one token, found none");
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

// What is to stand behind the answer; nothing where the field is absent or empty.
std::optional<std::vector<int32_t>> read_suffix(Fields& fields, const ServedModel& model, const ParseContext& context) {
  const json::value* value = fields.any("suffix");
  if (!value || (value->is_string() && value->get_string().empty())) return std::nullopt;
  if (!value->is_string()) fields.fail("suffix", fmt::format("expected a string, found {}", describe(*value)));
  if (!check_fill_in(fields, model, "suffix")) return std::nullopt;
  const std::string_view text(value->get_string());
  if (!check_text_bytes(fields, model, "suffix", text.size())) return std::nullopt;
  return encode_plain(fields, model, context, "suffix", text);
}

// 0 to 20 alternatives, or true or false as the chat endpoint has it: vLLM and others take true as 1.
int read_completion_logprobs(Fields& fields) {
  const json::value* value = fields.any("logprobs");
  if (value && value->is_bool()) return value->get_bool() ? 1 : -1;
  return static_cast<int>(fields.integer("logprobs", 0, kTopLogprobsMax).value_or(-1));
}

// Checks what does not go together with a grammar, and hands the stop strings to whoever looks for them.
void take_structure(Fields& fields, const ServedModel& model, AnswerStructure structure, ApiRequest* out) {
  AnswerForm& form = out->form;
  const bool is_constrained = structure.is_constrained();
  const std::string field = structure.content ? structure.content_field : "tool_choice";
  if (is_constrained && !model.grammars) {
    fields.fail(field, "answers cannot be held to a structure here: there is no vocabulary for it", "unsupported");
  }
  for (const PromptRequest& prompt : out->prompts) {
    const Request& request = prompt.request;
    if (!is_constrained || fields.failed()) break;
    const char* other = form.beams                ? "use_beam_search"
                        : request.min_tokens > 0  ? "min_tokens"
                        : request.stop.ignore_eos ? "ignore_eos"
                        : request.max_tokens == 0 ? "max_tokens: 0"
                                                  : nullptr;
    if (other) fields.fail(field, fmt::format("not together with {}", other), "unsupported");
  }
  if (form.chat && model.chat_format && model.reads_answers && model.chat_format->format->name != "plain") {
    StopParams& stop = out->prompts[0].request.stop;
    form.content_stops = std::exchange(stop.strings, {});
    form.include_stop = stop.include_string;
  }
  form.structure = std::make_shared<const AnswerStructure>(std::move(structure));
  if (form.structure->thought_tokens_max && form.beams)
    fields.fail("use_beam_search", "not together with a budget of thoughts", "unsupported");
  if (fields.failed()) return;
  if (model.tells_structures) {
    for (PromptRequest& prompt : out->prompts)
      prompt.request.constraint_source = structure_source(*form.structure, model, form.chat);
  }
  if (is_constrained) {
    out->grammar = grammar_job(form.structure, model, form.chat, out->prompts[0].request.cache_salt);
  } else if (form.structure->thought_tokens_max) {
    auto budget = with_thought_budget(nullptr, *form.structure, model);
    if (!budget) return fields.fail(to_api_error(budget.error()));
    for (PromptRequest& prompt : out->prompts) prompt.request.constraint = *budget;
  }
}

// Says which fields had no effect, and how long the answer may be where that is less than was asked for.
void add_headers(ApiRequest& request, std::optional<int64_t> max_tokens) {
  uint32_t least = std::numeric_limits<uint32_t>::max();
  for (const PromptRequest& prompt : request.prompts) least = std::min(least, prompt.request.max_tokens);
  if (max_tokens && *max_tokens > int64_t{least})
    request.headers.emplace_back("x-llmrt-max-tokens", fmt::to_string(least));
  if (!request.ignored_fields.empty())
    request.headers.emplace_back("x-llmrt-ignored", join_ignored(request.ignored_fields));
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

ApiError too_long(const ServedModel& model, std::string field, size_t num_tokens, bool at_least, int64_t answer) {
  const char* than = at_least ? "at least " : "";
  return invalid_field(
      std::move(field),
      fmt::format(
          "this model's maximum context length is {} tokens, {}{} were requested: {}{} in the prompt, {} in the "
          "answer",
          model.context_max, than, static_cast<int64_t>(num_tokens) + answer, than, num_tokens, answer),
      "context_length_exceeded");
}

ApiError client_has_gone() {
  return to_api_error(make_error(ErrorCode::kCancelled, "the client has gone"));
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

ApiResult<ApiRequest> parse_chat(const json::object& body, const ServedModel& model, const ParseContext& context) {
  constexpr int64_t kTokensMax = 1 << 30;
  Fields fields(body);
  Shared shared = read_shared(fields, model, context);
  shared.form.chat = true;
  read_neutral_chat(fields);
  const bool logprobs = fields.boolean("logprobs").value_or(false);
  const auto top_logprobs = fields.integer("top_logprobs", 0, kTopLogprobsMax);
  if (top_logprobs.value_or(0) > 0 && !logprobs)
    fields.fail("top_logprobs", "expected only together with logprobs: true");
  if (logprobs) shared.form.logprobs = static_cast<int>(top_logprobs.value_or(0));
  shared.sampling.logprobs = shared.form.logprobs;
  auto max_tokens = read_max_tokens(fields, "max_tokens", 1, kTokensMax);
  const auto new_name = read_max_tokens(fields, "max_completion_tokens", 1, kTokensMax);
  if (max_tokens && new_name && *max_tokens != *new_name)
    fields.fail("max_completion_tokens",
                fmt::format("expected the same as max_tokens = {}, found {}", *max_tokens, *new_name));
  if (new_name) max_tokens = new_name;

  ApiRequest out;
  out.form = shared.form;
  ReadChat chat = read_chat(fields, model, context, /*only_counting=*/false, out.ignored_fields);
  read_content_structure(fields, &chat.structure);
  judge_rest(fields, Endpoint::kChat, context.strict_fields, out.ignored_fields);
  std::vector<int32_t> prompt = render_chat(fields, model, context, &chat);
  if (!fields.failed() && prompt.empty()) fields.fail("messages", "expected at least one token, found none");
  if (fields.error()) return *fields.error();
  out.prompts.push_back({make_request(fields, shared, model, std::move(prompt), max_tokens.value_or(-1)), ""});
  take_structure(fields, model, std::move(chat.structure), &out);
  if (fields.error()) return *fields.error();
  add_headers(out, max_tokens);
  return out;
}

ApiResult<ApiRequest> parse_completion(const json::object& body, const ServedModel& model,
                                       const ParseContext& context) {
  constexpr int64_t kTokensMax = 1 << 30, kTokensUsual = 16;
  Fields fields(body);
  Shared shared = read_shared(fields, model, context);
  shared.form.echo = fields.boolean("echo").value_or(false);
  shared.form.logprobs = read_completion_logprobs(fields);
  shared.sampling.logprobs = shared.form.logprobs;
  shared.sampling.prompt_logprobs = shared.form.echo && shared.form.logprobs >= 0;
  read_best_of(fields, shared.form, shared.sampling);
  const int64_t max_tokens = read_max_tokens(fields, "max_tokens", 0, kTokensMax).value_or(kTokensUsual);
  if (max_tokens == 0 && !shared.form.echo)
    fields.fail("max_tokens", "expected at least 1 (or 0 together with echo), found 0");
  // Without log-probabilities there would be nothing to compute; the engine's name for that is prompt
  // log-probabilities.
  if (max_tokens == 0) shared.sampling.prompt_logprobs = true;
  if (max_tokens == 0 && shared.sampling.logprobs < 0) shared.sampling.logprobs = 0;
  const bool add_bos = fields.boolean("add_special_tokens").value_or(true);

  ApiRequest out;
  out.form = shared.form;
  const std::vector<const json::value*> values = find_prompts(fields, model);
  if (values.size() * out.form.best_of > kChoicesMax)
    fields.fail(out.form.best_of == out.form.n ? "n" : "best_of",
                fmt::format("expected at most {} choices in all, found {} for each of {} prompts", kChoicesMax,
                            out.form.best_of, values.size()));
  AnswerStructure structure;
  read_content_structure(fields, &structure);
  const json::value* suffix_value = fields.any("suffix");
  if (suffix_value && !is_neutral(Neutral::kEmpty, *suffix_value) && shared.form.echo)
    fields.fail("echo", "not together with suffix", "unsupported");
  judge_rest(fields, Endpoint::kCompletion, context.strict_fields, out.ignored_fields);
  if (fields.error()) return *fields.error();
  const auto suffix = read_suffix(fields, model, context);
  if (fields.error()) return *fields.error();
  out.prompts = read_prompts(fields, model, context, values, add_bos, shared.form.echo, suffix);
  if (fields.error()) return *fields.error();
  for (PromptRequest& prompt : out.prompts) {
    prompt.request = make_request(fields, shared, model, std::move(prompt.request.prompt), max_tokens);
    // Prompts draw apart; those of a seed that was asked for each as if alone.
    if (!shared.has_seed) ++shared.sampling.seed;
  }
  take_structure(fields, model, std::move(structure), &out);
  if (fields.error()) return *fields.error();
  add_headers(out, max_tokens);
  return out;
}

namespace {

// The text of one of /infill's fields; empty where it is absent.
std::string_view read_source(Fields& fields, const ServedModel& model, std::string_view name) {
  const json::value* value = fields.any(name);
  if (!value) return {};
  if (!value->is_string()) {
    fields.fail(name, fmt::format("expected a string, found {}", describe(*value)));
    return {};
  }
  const std::string_view text(value->get_string());
  return check_text_bytes(fields, model, name, text.size()) ? text : std::string_view();
}

// [{text, filename}, ...]
std::vector<SourceChunk> read_extra(Fields& fields) {
  std::vector<SourceChunk> chunks;
  const json::array* extra = fields.array("input_extra", kInfillChunksMax);
  if (!extra) return chunks;
  for (const json::value& entry : *extra) {
    const json::object* object = entry.if_object();
    const json::value* text = object ? object->if_contains("text") : nullptr;
    const json::value* name = object ? object->if_contains("filename") : nullptr;
    if (!text || !text->is_string() || (name && !name->is_null() && !name->is_string())) {
      fields.fail("input_extra", "expected objects with text and, where it is known, filename, both strings");
      return {};
    }
    const std::string_view file = name && name->is_string() ? std::string_view(name->get_string()) : std::string_view();
    chunks.push_back({file.substr(0, kInfillFileNameMax), std::string_view(text->get_string())});
  }
  return chunks;
}

std::vector<std::string> read_response_fields(Fields& fields) {
  std::vector<std::string> names;
  const json::array* given = fields.array("response_fields", 64);
  if (!given) return names;
  for (const json::value& name : *given) {
    if (!name.is_string() || name.get_string().size() > 128)
      fields.fail("response_fields", "expected strings of at most 128 bytes");
    else
      names.emplace_back(name.get_string());
  }
  return names;
}

// Names of llama.cpp that its editor plugins send with every request, and that change nothing here.
void read_infill_hints(Fields& fields, std::vector<std::string>& ignored) {
  for (const char* name : {"t_max_prompt_ms", "id_slot", "cache_prompt"}) fields.any(name);
  if (const json::value* samplers = fields.any("samplers"); samplers && !is_neutral(Neutral::kEmpty, *samplers))
    add_ignored(ignored, "samplers");
  for (const char* name : {"n_indent", "t_max_predict_ms"}) {
    if (const json::value* value = fields.any(name); value && !is_neutral(Neutral::kZero, *value))
      add_ignored(ignored, name);
  }
}

}  // namespace

ApiResult<ApiRequest> parse_infill(const json::object& body, const ServedModel& model, const ParseContext& context) {
  constexpr int64_t kTokensMax = 1 << 30;
  Fields fields(body);
  Shared shared = read_shared(fields, model, context);
  if (shared.form.n != 1) fields.fail("n", fmt::format("expected 1 for this path, found {}", shared.form.n));
  if (shared.form.beams) fields.fail("use_beam_search", "expected false for this path, found true");
  shared.form.infill = InfillForm{.response_fields = read_response_fields(fields)};
  std::optional<int64_t> max_tokens = read_max_tokens(fields, "n_predict", 0, kTokensMax);
  const auto new_name = read_max_tokens(fields, "max_tokens", 0, kTokensMax);
  if (max_tokens && new_name && *max_tokens != *new_name)
    fields.fail("max_tokens", fmt::format("expected the same as n_predict = {}, found {}", *max_tokens, *new_name));
  if (new_name) max_tokens = new_name;
  if (max_tokens == 0) {  // one token is the least that is computed
    shared.form.infill->shows_nothing = true;
    max_tokens = 1;
  }
  ApiRequest out;
  read_infill_hints(fields, out.ignored_fields);
  const std::string_view prefix = read_source(fields, model, "input_prefix");
  const std::string_view suffix = read_source(fields, model, "input_suffix");
  const std::string_view line = read_source(fields, model, "prompt");  // before the cursor, behind input_prefix
  FillIn wanted{.prefix = {}, .suffix = {}, .extra = read_extra(fields)};
  AnswerStructure structure;
  read_content_structure(fields, &structure);
  judge_rest(fields, Endpoint::kInfill, context.strict_fields, out.ignored_fields);
  check_fill_in(fields, model, "input_prefix");
  if (fields.error()) return *fields.error();

  wanted.prefix = encode_plain(fields, model, context, "input_prefix", std::string(prefix) + std::string(line));
  wanted.suffix = encode_plain(fields, model, context, "input_suffix", suffix);
  wanted.answer_tokens = static_cast<uint32_t>(std::clamp<int64_t>(max_tokens.value_or(-1), 1, model.context_max));
  std::vector<int32_t> prompt;
  if (!fields.failed())
    prompt = fill_in_prompt(fields, model, context, "input_prefix", wanted, true, &shared.form.infill->is_cut);
  if (fields.error()) return *fields.error();
  out.form = shared.form;
  out.prompts.push_back({make_request(fields, shared, model, std::move(prompt), max_tokens.value_or(-1)), ""});
  take_structure(fields, model, std::move(structure), &out);
  if (fields.error()) return *fields.error();
  add_headers(out, max_tokens);
  return out;
}

}  // namespace llmrt::server
