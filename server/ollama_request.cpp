#include "server/ollama_request.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "server/chat_messages.h"
#include "server/known_fields.h"
#include "server/message_content.h"
#include "server/rfc3339.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

constexpr size_t kNameBytes = 4096, kWordBytes = 256;
constexpr int64_t kTokens = 1 << 30;

// Options that mean the same here, under this name or another.
struct OllamaOption {
  std::string_view name, here;
};
constexpr OllamaOption kOptions[] = {
    {"temperature", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"min_p", "min_p"},
    {"stop", "stop"},
    {"repeat_penalty", "repetition_penalty"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
};

// Fields of the body that this form has another place or no place for.
constexpr OllamaOption kElsewhere[] = {
    {"response_format", "use format"},
    {"logprobs", "use /v1/chat/completions"},
    {"top_logprobs", "use /v1/chat/completions"},
    {"n", "use /v1/chat/completions"},
};

// What clients of this dialect may set beside Ollama's own fields.
constexpr std::array kOurs = {"cache_salt",  "request_class", "deadline_ms",
                              "speculative", "adapter_scale", "chat_template_kwargs"};

bool is_set(const json::value& value) {
  return !is_neutral(Neutral::kEmpty, value) && !is_neutral(Neutral::kOff, value) && !is_neutral(Neutral::kZero, value);
}

class OllamaTranslator {
 public:
  OllamaTranslator(Fields& fields, const ServedModel& model, const ParseContext& context, OllamaForm& form)
      : fields_(fields), model_(model), context_(context), form_(form) {}

  void read_chat() {
    read_common();
    const json::array* messages = fields_.array("messages", kMessagesMax);
    if (!messages || messages->empty()) return set_idle();
    json::array out;
    for (size_t i = 0; i < messages->size() && !fields_.failed(); ++i) {
      if (context_.is_cancelled()) fields_.fail(client_has_gone());
      read_message((*messages)[i], i, out);
    }
    read_tools();
    take_rest(Endpoint::kChat);
    if (fields_.failed()) return;
    const json::object& last = out.back().get_object();
    const json::value* content = last.if_contains("content");
    const bool goes_on = last.at("role").is_string() && last.at("role").get_string() == "assistant" &&
                         !last.contains("tool_calls") && content && content->is_string() &&
                         !content->get_string().empty();
    if (goes_on) body_["continue_final_message"] = true;
    body_["messages"] = std::move(out);
  }

  void read_generate() {
    read_common();
    const auto prompt = fields_.string("prompt", kMessageTextBytesMax);
    const auto system = fields_.string("system", kMessageTextBytesMax);
    const json::value* suffix = fields_.any("suffix");
    const bool is_raw = fields_.boolean("raw").value_or(false);
    const bool fills_in = suffix && !is_neutral(Neutral::kEmpty, *suffix);
    if (const json::value* images = fields_.any("images"); images && !is_neutral(Neutral::kEmpty, *images))
      fields_.fail("images", "not supported: this model reads text only", "unsupported");
    if ((!prompt || prompt->empty()) && !fills_in) return set_idle();
    is_completion_ = is_raw || fills_in || !model_.chat_template;
    take_rest(is_completion_ ? Endpoint::kCompletion : Endpoint::kChat);
    if (fields_.failed()) return;
    const bool has_system = system && !system->empty();
    if (is_completion_) {
      if (has_system)
        return fields_.fail("system",
                            is_raw || fills_in ? "not together with raw or suffix" : "this model has no chat template",
                            "unsupported");
      body_["prompt"] = prompt.value_or("");
      if (fills_in) body_["suffix"] = *suffix;
      for (const char* name : {"enable_thinking", "reasoning_effort", "chat_template_kwargs"}) body_.erase(name);
      return;
    }
    json::array messages;
    if (has_system) messages.push_back({{"role", "system"}, {"content", *system}});
    messages.push_back({{"role", "user"}, {"content", *prompt}});
    body_["messages"] = std::move(messages);
  }

  bool is_completion() const { return is_completion_; }
  // Why nothing is to be written ("load", "unload"); else empty.
  const std::string& idle() const { return idle_; }
  const json::object& body() const { return body_; }
  const std::vector<std::string>& ignored() const { return ignored_; }

 private:
  void read_common() {
    if (fields_.object().size() > kFieldsMax)
      return fields_.fail(invalid_field(
          "body", fmt::format("expected at most {} fields, found {}", kFieldsMax, fields_.object().size())));
    const auto name = fields_.string("model", kNameBytes);
    form_.model = name.value_or(ollama_name(model_.id));
    if (name) body_["model"] = *name;
    body_["stream"] = fields_.boolean("stream").value_or(true);
    body_["max_tokens"] = -1;
    read_options();
    read_format();
    read_think();
  }

  // Nothing is to be written: the model is to be loaded, or to go. It stays.
  void set_idle() {
    const json::value* keep = fields_.any("keep_alive");
    const bool goes =
        keep && (is_neutral(Neutral::kZero, *keep) || (keep->is_string() && keep->get_string().starts_with('0')));
    idle_ = goes ? "unload" : "load";
    Fields fields(body_);
    check_model_name(fields, model_);
    if (fields.error()) fields_.fail(*fields.error());
  }

  void read_options() {
    const json::object* options = fields_.object("options");
    if (!options) return;
    if (options->size() > kFieldsMax)
      return fields_.fail("options", fmt::format("expected at most {} fields, found {}", kFieldsMax, options->size()));
    Fields inner(*options, "options.");
    for (const OllamaOption& option : kOptions)
      if (const json::value* value = inner.any(option.name)) body_[option.here] = *value;
    // Below zero: any.
    if (const auto seed = inner.integer("seed", INT64_MIN, INT64_MAX); seed && *seed >= 0) body_["seed"] = *seed;
    if (const auto length = inner.integer("num_predict", -kTokens, kTokens); length && *length > 0)
      body_["max_tokens"] = *length;
    if (const auto context = inner.integer("num_ctx", -kTokens, kTokens);
        context && *context > int64_t{model_.context_max})
      ignore(inner, "num_ctx", "options.num_ctx");
    inner.for_each_unread([&](std::string_view name, const json::value& value) {
      if (is_known(name, Endpoint::kChat) && !body_.contains(name))
        body_[name] = value;  // judged as a chat's
      else
        ignore(inner, name, "options." + shown_name(name));
    });
    if (inner.error()) fields_.fail(*inner.error());
  }

  void ignore(Fields& fields, std::string_view name, const std::string& shown) {
    if (context_.strict_fields)
      fields.fail(shown_name(name), "expected nothing: it has no effect here", "unsupported");
    else
      add_ignored(ignored_, shown);
  }

  // Among the names that an endpoint judges and does not read.
  static bool is_known(std::string_view name, Endpoint endpoint) {
    const auto rows = known_fields();
    const auto row = std::ranges::find(rows, name, &KnownField::name);
    return row != rows.end() && (row->endpoints & static_cast<uint8_t>(endpoint)) != 0;
  }

  void read_format() {
    const json::value* format = fields_.any("format");
    if (!format || is_neutral(Neutral::kEmpty, *format)) return;
    if (format->is_string() && format->get_string() == "json") {
      body_["response_format"] = json::object{{"type", "json_object"}};
    } else if (format->is_object()) {
      body_["response_format"] = json::object{{"type", "json_schema"}, {"json_schema", {{"schema", *format}}}};
    } else {
      fields_.fail("format", fmt::format("expected \"json\" or a JSON schema, found {}", describe(*format)));
    }
  }

  void read_think() {
    const json::value* think = fields_.any("think");
    if (!think) return;
    const bool is_effort = think->is_string();
    if (!think->is_bool() && !is_effort)
      return fields_.fail("think", fmt::format("expected true, false or an effort, found {}", describe(*think)));
    const bool thinks = is_effort || think->get_bool();
    const bool has_thoughts = model_.chat_format && model_.tokenizer && model_.chat_format->format->has_thoughts();
    if (thinks && !has_thoughts)
      return fields_.fail("think", fmt::format("'{}' does not support thinking", model_.id), "unsupported");
    body_["enable_thinking"] = thinks;
    if (is_effort && fields_.string("think", kWordBytes)) body_["reasoning_effort"] = *think;
  }

  void read_message(const json::value& value, size_t index, json::array& out) {
    const std::string place = fmt::format("messages[{}]", index);
    if (!value.is_object()) return fields_.fail(place, fmt::format("expected an object, found {}", describe(value)));
    json::object message = value.get_object();
    if (const json::value* images = message.if_contains("images");
        images && !images->is_null() && !is_neutral(Neutral::kEmpty, *images))
      return fields_.fail(place + ".images", "not supported: this model reads text only", "unsupported");
    message.erase("images");
    rename(message, "thinking", "reasoning_content");
    rename(message, "tool_name", "name");
    if (!message.contains("role"))
      return fields_.fail(place + ".role", "expected system, user, assistant or tool, found nothing");
    if (!message.contains("content")) message["content"] = "";
    out.emplace_back(std::move(message));
  }

  static void rename(json::object& object, std::string_view from, std::string_view to) {
    json::value* value = object.if_contains(from);
    if (!value) return;
    json::value moved = std::move(*value);
    object.erase(from);
    object[to] = std::move(moved);
  }

  // As OpenAI's, where the type may be left out.
  void read_tools() {
    const json::array* tools = fields_.array("tools", kToolsMax);
    if (!tools || tools->empty()) return;
    json::array out = *tools;
    for (json::value& tool : out)
      if (json::object* object = tool.if_object(); object && !object->contains("type")) (*object)["type"] = "function";
    body_["tools"] = std::move(out);
  }

  void take_rest(Endpoint endpoint) {
    for (const OllamaOption& row : kElsewhere) {
      const json::value* value = fields_.any(row.name);
      if (value && is_set(*value) && *value != 1)
        fields_.fail(row.name, fmt::format("not supported in this form of a request: {}", row.here), "unsupported");
    }
    for (const char* name : kOurs)
      if (const json::value* value = fields_.any(name)) body_[name] = *value;
    // Prompts are never cut, whether or not a client would have them cut.
    for (const char* name : {"truncate", "shift"}) fields_.any(name);
    fields_.for_each_unread([&](std::string_view name, const json::value& value) {
      if (is_known(name, endpoint) && !body_.contains(name))
        body_[name] = value;
      else
        ignore(fields_, name, shown_name(name));
    });
  }

  Fields& fields_;
  const ServedModel& model_;
  const ParseContext& context_;
  OllamaForm& form_;
  json::object body_;
  bool is_completion_ = false;
  std::string idle_;
  std::vector<std::string> ignored_;
};

ApiError as_option(ApiError error) {
  const auto option = std::ranges::find(kOptions, error.param, &OllamaOption::here);
  if (option != std::end(kOptions)) rename_param(fmt::format("options.{}", option->name), &error);
  return error;
}

std::string idle_answer(const OllamaForm& form, const std::string& why) {
  json::object answer{{"model", form.model}, {"created_at", rfc3339(std::time(nullptr))}};
  if (form.is_generate)
    answer["response"] = "";
  else
    answer["message"] = json::object{{"role", "assistant"}, {"content", ""}};
  answer["done"] = true;
  answer["done_reason"] = why;
  return json::serialize(answer);
}

ApiResult<ApiRequest> parse_ollama(const json::object& body, const ServedModel& model, const ParseContext& context,
                                   bool is_generate) {
  Fields fields(body);
  OllamaForm form;
  form.is_generate = is_generate;
  OllamaTranslator translator(fields, model, context, form);
  is_generate ? translator.read_generate() : translator.read_chat();
  if (fields.error()) return *fields.error();
  if (!translator.idle().empty()) {
    ApiRequest idle;
    idle.ready = idle_answer(form, translator.idle());
    return idle;
  }
  ApiResult<ApiRequest> parsed = translator.is_completion() ? parse_completion(translator.body(), model, context)
                                                            : parse_chat(translator.body(), model, context);
  if (auto* error = std::get_if<ApiError>(&parsed)) return as_option(std::move(*error));
  auto& request = std::get<ApiRequest>(parsed);
  request.form.own = std::make_shared<const OllamaForm>(std::move(form));
  note_ignored(request, translator.ignored());
  return parsed;
}

}  // namespace

ApiResult<ApiRequest> parse_ollama_chat(const json::object& body, const ServedModel& model,
                                        const ParseContext& context) {
  return parse_ollama(body, model, context, /*is_generate=*/false);
}
ApiResult<ApiRequest> parse_ollama_generate(const json::object& body, const ServedModel& model,
                                            const ParseContext& context) {
  return parse_ollama(body, model, context, /*is_generate=*/true);
}

std::string ollama_name(std::string_view id) {
  const size_t slash = id.rfind('/');
  const bool has_tag = id.find(':', slash == id.npos ? 0 : slash) != id.npos;
  return std::string(id) + (has_tag ? "" : ":latest");
}

}  // namespace llmrt::server
