#include "server/shared_fields.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <utility>

#include "core/base/keyed_hash.h"
#include "core/speculate/ngram_drafter.h"
#include "server/bad_words.h"
#include "server/key_ring.h"
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

// Beam search: best_of (or n) is the width.
void read_beams(Fields& fields, SharedFields& shared) {
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

std::string read_salt(Fields& fields, const ParseContext& context) {
  const std::string_view from_header = context.cache_salt;
  if (auto salt = fields.string("cache_salt", kCacheSaltBytesMax)) return scoped_salt(context.key_salt, *salt);
  if (from_header.size() > kCacheSaltBytesMax)
    fields.fail("x-cache-salt",
                fmt::format("expected at most {} bytes, found {}", kCacheSaltBytesMax, from_header.size()));
  return scoped_salt(context.key_salt, from_header);
}

// The text of a prediction, which has parts as a message does.
std::string predicted_text(Fields& fields, const json::object& prediction) {
  std::string text;
  const json::value* content = prediction.if_contains("content");
  const auto add = [&](const json::value& part) {
    const json::value* words = part.is_object() ? part.get_object().if_contains("text") : &part;
    if (words == nullptr || !words->is_string())
      return fields.fail("prediction", "expected content of text, or of parts with text");
    text += std::string_view(words->get_string());
  };
  if (content == nullptr || !content->is_array())
    add(content == nullptr ? json::value() : *content);
  else
    for (const json::value& part : content->get_array()) add(part);
  return text;
}

// A prediction is drafted from, unless the request wants no drafts or the model's alone; more of it than an answer can
// have is left out. Where it ends, or is not followed, the server's draft model goes on, if there is one.
std::optional<Speculation> read_speculation(Fields& fields, const ServedModel& model) {
  Speculation speculation;
  std::optional<std::string> mode;
  if (const json::object* asked = fields.object("speculative")) {
    Fields inner(*asked, "speculative.");
    mode = inner.string("mode", 64).value_or("ngram");
    const bool asks_model = *mode == "model" || *mode == "both";
    if (*mode != "ngram" && *mode != "none" && !asks_model)
      inner.fail("mode",
                 fmt::format("expected \"ngram\", \"model\", \"both\" or \"none\", found \"{}\"", shown_name(*mode)));
    if (asks_model && !model.has_draft_model)
      inner.fail("mode", fmt::format("expected \"ngram\" or \"none\", as this model is served without a draft model "
                                     "(--draft-model), found \"{}\"",
                                     *mode));
    speculation.tokens_max =
        static_cast<uint32_t>(inner.integer("draft_tokens", 1, kDraftTokensMax).value_or(kDraftTokensDefault));
    inner.refuse_unread();
    if (inner.error()) fields.fail(*inner.error());
  }
  const json::object* prediction = fields.object("prediction");
  if (!mode && prediction == nullptr) return std::nullopt;
  std::vector<int32_t> predicted;
  if (prediction != nullptr) {
    const std::string text = predicted_text(fields, *prediction);
    if (fields.failed()) return std::nullopt;
    if (model.tokenizer && mode != "none" && mode != "model")
      predicted =
          model.tokenizer->encode(text, {.parse_special = false, .add_bos = false, .tokens_max = model.context_max});
    if (predicted.size() > model.context_max) predicted.clear();  // it was not read to its end
  }
  if (mode != "none" && mode != "model") speculation.source = std::make_shared<const NgramDrafts>(std::move(predicted));
  speculation.by_model = mode == "model" || mode == "both" || (!mode && model.has_draft_model);
  return speculation;
}

// Fields that others know, at the value that changes nothing. Most are in server/known_fields.h; these have values of
// their own.
void read_neutral(Fields& fields) {
  // The cache key is no salt: it would keep apart what the prefix cache finds by itself.
  for (const char* name : {"safety_identifier", "prompt_cache_key", "prompt_cache_retention"})
    fields.string(name, kHintBytesMax);
}

// How many tokens the answer may have: `max_tokens` (-1 = what the context leaves), or less where the context leaves
// less. 0 where it leaves none, unless none is wanted; fields.failed() then.
uint32_t room_for_answer(Fields& fields, const SharedFields& shared, const ServedModel& model, size_t prompt_tokens,
                         int64_t max_tokens) {
  const int64_t left = int64_t{model.context_max} - static_cast<int64_t>(prompt_tokens);
  if (left < std::min<int64_t>(std::abs(max_tokens), 1)) {
    fields.fail(too_long(model, shared.form.chat ? "messages" : "prompt", prompt_tokens, /*at_least=*/false,
                         std::min<int64_t>(std::abs(max_tokens), 1)));
    return 0;
  }
  return static_cast<uint32_t>(max_tokens < 0 ? left : std::min(max_tokens, left));
}

}  // namespace

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

std::optional<int64_t> read_max_tokens(Fields& fields, std::string_view name, int64_t min, int64_t max) {
  const json::value* value = fields.any(name);
  if (value && value->is_number() && value->to_number<double>() == -1) return -1;
  return fields.integer(name, min, max);
}

std::optional<int64_t> read_max_tokens(Fields& fields, std::string_view name, std::string_view other_name, int64_t min,
                                       int64_t max) {
  const auto first = read_max_tokens(fields, name, min, max);
  const auto other = read_max_tokens(fields, other_name, min, max);
  if (first && other && *first != *other)
    fields.fail(other_name, fmt::format("expected the same as {} = {}, found {}", name, *first, *other));
  return other ? other : first;
}

// `model` names the model, or one of its adapters; 404 where it names neither, or one that the caller may not have.
void read_adapter(Fields& fields, const ServedModel& model, const ParseContext& context, SharedFields& shared) {
  const std::optional<double> scale = fields.number("adapter_scale", -16, 16);
  const std::optional<std::string> name = fields.string("model", 4096);
  const bool is_adapter = name && !is_name_of_model(*name, model);
  if (scale && !is_adapter) fields.fail("adapter_scale", "expected model to name an adapter beside it");
  if (!is_adapter) return;
  const std::optional<ShelvedAdapter> adapter = model.adapters ? model.adapters->find(*name) : std::nullopt;
  if (!adapter || adapter->model != model.id) return fields.fail(model_not_found(*name, model));
  const bool is_allowed = !context.key_adapters || std::ranges::count(*context.key_adapters, *name) > 0;
  if (!is_allowed || !adapter->ready.image) {
    ApiError error =
        invalid_field("model", fmt::format("the adapter '{}' is not there", shown_name(*name)), "adapter_not_found");
    error.status = 404;
    return fields.fail(std::move(error));
  }
  shared.adapter = adapter->ready;
  shared.adapter_use = adapter->use;
  if (scale) shared.adapter_scale = static_cast<float>(*scale);
}

SharedFields read_shared(Fields& fields, const ServedModel& model, const ParseContext& context) {
  SharedFields shared;
  read_adapter(fields, model, context, shared);
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
  shared.cache_salt = read_salt(fields, context);
  shared.speculation = read_speculation(fields, model);
  return shared;
}

Request make_request(Fields& fields, const SharedFields& shared, const ServedModel& model, std::vector<int32_t> prompt,
                     int64_t max_tokens) {
  Request request;
  const uint32_t wanted = room_for_answer(fields, shared, model, prompt.size(), max_tokens);
  if (shared.min_tokens > wanted)
    fields.fail("min_tokens", fmt::format("expected at most max_tokens or what the context leaves = {}, found {}",
                                          wanted, shared.min_tokens));
  request.prompt = std::move(prompt);
  request.adapter = shared.adapter.image;
  request.adapter_id = shared.adapter.id;
  request.adapter_digest = shared.adapter.digest;
  request.adapter_scale = shared.adapter_scale;
  request.adapter_use = shared.adapter_use;
  request.n = shared.form.best_of;
  request.sampling = shared.sampling;
  request.stop = shared.stop;
  request.beam = shared.beam;
  request.max_tokens = wanted;
  request.min_tokens = shared.min_tokens;
  request.route = shared.form.chat ? llmrt::Route::kChat : llmrt::Route::kCompletion;
  request.request_class = shared.request_class;
  request.batch_invariant = shared.batch_invariant;
  request.deadline_ms = shared.deadline_ms;
  request.cache_salt = shared.cache_salt;
  request.speculation = shared.speculation;
  request.policy = model.policy;
  if (!request.beam || fields.failed()) return request;
  if (const Status status = validate(request, model.vocab_size); !status) {  // says what does not go together with it
    ApiError error = to_api_error(status.error());
    error.param = "use_beam_search";
    fields.fail(std::move(error));
  }
  return request;
}

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

void add_headers(ApiRequest& request, std::optional<int64_t> max_tokens) {
  uint32_t least = std::numeric_limits<uint32_t>::max();
  for (const PromptRequest& prompt : request.prompts) least = std::min(least, prompt.request.max_tokens);
  if (max_tokens && *max_tokens > int64_t{least})
    request.headers.emplace_back("x-llmrt-max-tokens", fmt::to_string(least));
  if (!request.ignored_fields.empty())
    request.headers.emplace_back(kIgnoredHeader, join_ignored(request.ignored_fields));
}

}  // namespace llmrt::server
