#include "server/api_request.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/text/detokenizer.h"
#include "server/chat_messages.h"
#include "server/fill_in_middle.h"
#include "server/known_fields.h"
#include "server/prompt_tokens.h"
#include "server/shared_fields.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

void read_neutral_chat(Fields& fields) {
  fields.neutral(
      "modalities",
      [](const json::value& value) {
        return value.is_array() && value.get_array().size() == 1 && value.get_array()[0] == "text";
      },
      "[\"text\"]");
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

}  // namespace

bool is_name_of_model(std::string_view name, const ServedModel& model) {
  const auto bare = [](std::string_view text) {
    constexpr std::string_view kLatest = ":latest";
    return text.ends_with(kLatest) ? text.substr(0, text.size() - kLatest.size()) : text;
  };
  return bare(name) == bare(model.id);
}

bool is_name_of(std::string_view name, const ServedModel& model) {
  if (is_name_of_model(name, model)) return true;
  const std::optional<ShelvedAdapter> adapter = model.adapters ? model.adapters->find(name) : std::nullopt;
  return adapter && adapter->model == model.id;
}

void check_model_name(Fields& fields, const ServedModel& model) {
  const auto name = fields.string("model", 4096);
  if (name && !is_name_of(*name, model)) fields.fail(model_not_found(*name, model));
}

ApiError model_not_found(std::string_view name, const ServedModel& model) {
  ApiError error = invalid_field(
      "model", fmt::format("not found: expected '{}', found '{}'", model.id, shown_name(name)), "model_not_found");
  error.status = 404;
  return error;
}

ApiError too_long(const ServedModel& model, std::string field, size_t num_tokens, bool at_least, int64_t answer) {
  const char* than = at_least ? "at least " : "";
  ApiError error = invalid_field(
      std::move(field),
      fmt::format(
          "this model's maximum context length is {} tokens, {}{} were requested: {}{} in the prompt, {} in the "
          "answer",
          model.context_max, than, static_cast<int64_t>(num_tokens) + answer, than, num_tokens, answer),
      "context_length_exceeded");
  error.prompt_tokens = num_tokens;
  error.prompt_tokens_max = model.context_max - 1;
  return error;
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
  ApiError error = invalid_field(
      std::string(name),
      fmt::format("this model's maximum context length is {} tokens: expected a text of at most {} bytes, found {}",
                  model.context_max, model.text_bytes_max, num_bytes),
      "context_length_exceeded");
  error.prompt_tokens = size_t{model.context_max} + 1;  // at least
  error.prompt_tokens_max = model.context_max - 1;
  fields.fail(std::move(error));
  return false;
}

void note_ignored(ApiRequest& request, const std::vector<std::string>& names) {
  if (names.empty()) return;
  for (const std::string& name : names) add_ignored(request.ignored_fields, name);
  std::erase_if(request.headers, [](const auto& header) { return header.first == kIgnoredHeader; });
  request.headers.emplace_back(kIgnoredHeader, join_ignored(request.ignored_fields));
}

ApiResult<ApiRequest> parse_chat(const json::object& body, const ServedModel& model, const ParseContext& context) {
  constexpr int64_t kTokensMax = 1 << 30;
  Fields fields(body);
  SharedFields shared = read_shared(fields, model, context);
  shared.form.chat = true;
  read_neutral_chat(fields);
  const bool logprobs = fields.boolean("logprobs").value_or(false);
  const auto top_logprobs = fields.integer("top_logprobs", 0, kTopLogprobsMax);
  if (top_logprobs.value_or(0) > 0 && !logprobs)
    fields.fail("top_logprobs", "expected only together with logprobs: true");
  if (logprobs) shared.form.logprobs = static_cast<int>(top_logprobs.value_or(0));
  shared.sampling.logprobs = shared.form.logprobs;
  const auto max_tokens = read_max_tokens(fields, "max_tokens", "max_completion_tokens", 1, kTokensMax);

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
  SharedFields shared = read_shared(fields, model, context);
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

}  // namespace llmrt::server
