#include "server/messages_request.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "server/chat_messages.h"
#include "server/client_paths.h"
#include "server/known_fields.h"
#include "server/message_content.h"
#include "server/messages_turns.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

constexpr size_t kWordBytesMax = 256;  // of types, efforts, names of tools
constexpr int64_t kAnswerTokensMax = 1 << 30;

// Fields of a chat that another field says here, or that this form of an answer has no place for.
struct ChatOnly {
  std::string_view name, instead;
  Neutral neutral = Neutral::kNothing;
};
constexpr ChatOnly kChatOnly[] = {
    {"stop", "use stop_sequences", Neutral::kEmpty},
    {"include_stop_str_in_output", "the field stop_sequence tells the text", Neutral::kFalse},
    {"response_format", "use output_config.format"},
    {"max_completion_tokens", "use max_tokens"},
    {"reasoning_effort", "use output_config.effort"},
    {"enable_thinking", "use thinking"},
    {"thinking_token_budget", "use thinking.budget_tokens", Neutral::kMinusOne},
    {"reasoning_budget_tokens", "use thinking.budget_tokens", Neutral::kMinusOne},
    {"thinking_budget_tokens", "use thinking.budget_tokens", Neutral::kMinusOne},
    {"thinking_budget", "use thinking.budget_tokens", Neutral::kMinusOne},
    {"reasoning_budget", "use thinking.budget_tokens", Neutral::kMinusOne},
    {"parallel_tool_calls", "use tool_choice.disable_parallel_tool_use"},
    {"functions", "use tools", Neutral::kEmpty},
    {"function_call", "use tool_choice"},
    {"documents", "use blocks of type document", Neutral::kEmpty},
    {"continue_final_message", "end messages with one of role assistant", Neutral::kFalse},
    {"add_generation_prompt", "end messages with one of role user", Neutral::kTrue},
    {"n", "use /v1/chat/completions", Neutral::kOne},
    {"use_beam_search", "use /v1/chat/completions", Neutral::kFalse},
    {"logprobs", "use /v1/chat/completions", Neutral::kFalse},
    {"top_logprobs", "use /v1/chat/completions", Neutral::kZero},
    {"return_token_ids", "use /v1/chat/completions", Neutral::kFalse},
    {"stream_options", "the stream ends with the usage"},
};

// What the translation itself reads.
constexpr std::array kTranslated = {"messages",      "system",        "tools",          "tool_choice", "thinking",
                                    "output_config", "output_format", "stop_sequences", "max_tokens",  "top_k"};

// Anthropic's own tools: "web_search_20250305", "bash_20250124" ...
bool is_server_tool(std::string_view type) {
  constexpr size_t kDigits = 8;
  if (type == "mcp_toolset" || type == "tool_search_tool_regex" || type == "tool_search_tool_bm25") return true;
  if (type.size() < kDigits + 2 || type[type.size() - kDigits - 1] != '_') return false;
  return std::ranges::all_of(type.substr(type.size() - kDigits), [](char c) { return c >= '0' && c <= '9'; });
}

class MessagesTranslator {
 public:
  MessagesTranslator(Fields& fields, const ServedModel& model, const ParseContext& context, TranslatedMessages& out)
      : fields_(fields), model_(model), context_(context), out_(out) {}

  void read(bool only_counting) {
    read_messages();
    read_tools();
    read_choice();
    read_thinking();
    read_output();
    read_length(only_counting);
    read_stops();
    if (const auto top_k = fields_.integer("top_k", -1, kAnswerTokensMax)) out_.chat["top_k"] = *top_k;
    take_rest();
  }

 private:
  void read_messages() {
    TurnBuilder turns({.strict = context_.strict_fields,
                       .keeps_client_headers = context_.keeps_client_headers,
                       .shows_inline_system = model_.shows_inline_system},
                      out_.ignored);
    turns.add_system(fields_);
    const json::array* messages = fields_.array("messages", kMessagesMax);
    if (!messages || messages->empty()) return fields_.fail("messages", "expected at least one message, found none");
    for (size_t i = 0; i < messages->size() && !fields_.failed(); ++i) {
      if (context_.is_cancelled()) fields_.fail(client_has_gone());
      turns.add_message(fields_, (*messages)[i], i);
      if (turns.size() > kMessagesMax)
        fields_.fail(fmt::format("messages.{}", i),
                     fmt::format("expected at most {} turns with the results of tools, found more", kMessagesMax));
    }
    if (fields_.failed()) return;
    if (turns.ends_with_assistant()) {
      const std::string place = fmt::format("messages.{}", messages->size() - 1);
      if (turns.last_has_calls())
        return fields_.fail(place, "expected the results of its calls behind it, found nothing");
      if (turns.last_has_text()) {
        out_.chat["continue_final_message"] = true;
      } else {  // as a client has it that may begin the answer and does not
        turns.drop_last();
      }
    }
    if (turns.empty()) return fields_.fail("messages", "expected a message that says something, found none");
    out_.message_of = turns.origins();
    out_.chat["messages"] = turns.take();
  }

  void read_tools() {
    const json::array* tools = fields_.array("tools", kToolsMax);
    if (!tools) return;
    json::array chat_tools;
    for (size_t i = 0; i < tools->size() && !fields_.failed(); ++i) {
      const std::string place = fmt::format("tools.{}", i);
      const json::object* tool = (*tools)[i].if_object();
      if (!tool) return fields_.fail(place, fmt::format("expected an object, found {}", describe((*tools)[i])));
      Fields inner(*tool, place + ".");
      read_tool(inner, i, chat_tools);
      if (inner.error()) fields_.fail(*inner.error());
    }
    if (!chat_tools.empty()) out_.chat["tools"] = std::move(chat_tools);
  }

  void read_tool(Fields& tool, size_t index, json::array& chat_tools) {
    const std::string type = tool.string("type", kWordBytesMax).value_or("custom");
    const json::value* name = tool.any("name");
    if (type != "custom" && is_server_tool(type)) {
      if (name && name->is_string() && name->get_string().size() <= kWordBytesMax)
        dropped_tools_.emplace_back(name->get_string());
      return add_ignored(out_.ignored, "tools." + type);
    }
    if (type != "custom")
      return tool.fail("type", fmt::format("not supported: expected custom, found '{}'", shown_name(type)),
                       "unsupported");
    const json::object* schema = tool.object("input_schema");
    if (!schema) tool.fail("input_schema", "expected an object, found nothing");
    if (!name) tool.fail("name", "expected a string, found nothing");
    json::object function;
    if (name) function["name"] = *name;
    if (const json::value* description = tool.any("description")) function["description"] = *description;
    if (schema) function["parameters"] = *schema;
    if (const auto strict = tool.boolean("strict")) function["strict"] = *strict;
    for (const char* hint :
         {"cache_control", "defer_loading", "eager_input_streaming", "input_examples", "allowed_callers"})
      tool.any(hint);
    if (context_.strict_fields) tool.refuse_unread();
    if (tool.failed()) return;
    chat_tools.push_back({{"type", "function"}, {"function", std::move(function)}});
    out_.tool_of.push_back(index);
  }

  void read_choice() {
    const json::object* choice = fields_.object("tool_choice");
    if (!choice) return;
    Fields inner(*choice, "tool_choice.");
    const std::string type = inner.string("type", kWordBytesMax).value_or("");
    const auto name = inner.string("name", kWordBytesMax);
    if (inner.boolean("disable_parallel_tool_use").value_or(false)) out_.chat["parallel_tool_calls"] = false;
    if (type == "any") {
      out_.chat["tool_choice"] = "required";
      if (out_.tool_of.empty()) inner.fail("type", "expected tools with an input_schema beside any, found none");
    } else if (type == "tool") {
      if (!name) inner.fail("name", "expected the name of a tool, found nothing");
      if (name && std::ranges::find(dropped_tools_, *name) != dropped_tools_.end())
        inner.fail("name", fmt::format("not supported: the tool '{}' runs on Anthropic's servers", shown_name(*name)),
                   "unsupported");
      out_.chat["tool_choice"] = json::object{{"type", "function"}, {"function", {{"name", name.value_or("")}}}};
    } else if (type == "auto" || type == "none") {
      out_.chat["tool_choice"] = type;
    } else {
      inner.fail("type", fmt::format("expected auto, any, tool or none, found '{}'", shown_name(type)));
    }
    if (context_.strict_fields) inner.refuse_unread();
    if (inner.error()) fields_.fail(*inner.error());
  }

  // Without it a model that can do without thoughts has none, as clients read content[0] as text then.
  void read_thinking() {
    const json::object* thinking = fields_.object("thinking");
    std::string type = "disabled";
    if (thinking) {
      Fields inner(*thinking, "thinking.");
      type = inner.string("type", kWordBytesMax).value_or("");
      const auto budget = inner.integer("budget_tokens", 0, kAnswerTokensMax);
      const std::string display = inner.string("display", kWordBytesMax).value_or("summarized");
      if (type != "enabled" && type != "adaptive" && type != "between_tools" && type != "disabled")
        inner.fail("type",
                   fmt::format("expected enabled, adaptive, between_tools or disabled, found '{}'", shown_name(type)));
      if (type == "enabled" && !budget) inner.fail("budget_tokens", "expected a number, found nothing");
      if (display != "summarized" && display != "omitted" && display != "full")
        inner.fail("display", fmt::format("expected summarized, full or omitted, found '{}'", shown_name(display)));
      if (context_.strict_fields) inner.refuse_unread();
      if (inner.error()) return fields_.fail(*inner.error());
      out_.form.hides_thoughts = display == "omitted";
      const bool has_thoughts = model_.chat_format && model_.tokenizer && model_.chat_format->format->has_thoughts();
      if (budget && type != "disabled" && has_thoughts) out_.chat["thinking_token_budget"] = *budget;
    }
    const json::value* kwargs = fields_.object().if_contains("chat_template_kwargs");
    const json::object* told = kwargs ? kwargs->if_object() : nullptr;
    const bool is_told = told && (told->contains("enable_thinking") || told->contains("thinking"));
    if (thinking || !is_told) out_.chat["enable_thinking"] = type != "disabled";
  }

  void read_output() {
    const json::object* config = fields_.object("output_config");
    const json::object* format = fields_.object("output_format");  // its older name
    std::string place = "output_format.";
    if (config) {
      Fields inner(*config, "output_config.");
      if (const auto effort = inner.string("effort", kWordBytesMax)) {
        // Templates know three grades.
        out_.chat["reasoning_effort"] = *effort == "xhigh" || *effort == "max" ? "high" : *effort;
        if (*effort == "none") inner.fail("effort", "expected low, medium, high, xhigh or max, found 'none'");
      }
      if (const json::object* inside = inner.object("format")) {
        if (format) inner.fail("format", "expected one format, found output_format, too");
        format = inside;
        place = "output_config.format.";
      }
      inner.any("task_budget");
      if (context_.strict_fields) inner.refuse_unread();
      if (inner.error()) return fields_.fail(*inner.error());
    }
    if (!format) return;
    Fields inner(*format, place);
    const std::string type = inner.string("type", kWordBytesMax).value_or("");
    const json::value* schema = inner.any("schema");
    if (type != "json_schema") inner.fail("type", fmt::format("expected json_schema, found '{}'", shown_name(type)));
    if (!schema || !schema->is_object()) inner.fail("schema", "expected an object, found none");
    if (inner.error()) return fields_.fail(*inner.error());
    out_.chat["response_format"] = json::object{{"type", "json_schema"}, {"json_schema", {{"schema", *schema}}}};
  }

  void read_length(bool only_counting) {
    const auto max_tokens = fields_.integer("max_tokens", 0, kAnswerTokensMax);
    if (only_counting) return;
    if (!max_tokens) return fields_.fail("max_tokens", "expected a number, found nothing");
    out_.form.shows_nothing = *max_tokens == 0;  // the prompt alone is wanted, for the prefix cache
    out_.form.max_tokens = std::max<int64_t>(*max_tokens, 1);
    out_.chat["max_tokens"] = out_.form.max_tokens;
  }

  void read_stops() {
    const json::array* stops = fields_.array("stop_sequences", kStopStringsMax);
    if (!stops) return;
    for (size_t i = 0; i < stops->size(); ++i) {
      const json::value& stop = (*stops)[i];
      if (!stop.is_string() || stop.get_string().size() > kStopStringBytesMax)
        return fields_.fail(
            fmt::format("stop_sequences.{}", i),
            fmt::format("expected a string of at most {} bytes, found {}", kStopStringBytesMax, describe(stop)));
      if (!stop.get_string().empty()) out_.stops.emplace_back(stop.get_string());
    }
    out_.chat["stop"] = *stops;
  }

  // What a chat knows, too, is the chat's; it judges what nobody knows.
  void take_rest() {
    if (fields_.failed()) return;
    for (const ChatOnly& row : kChatOnly) {
      const json::value* value = fields_.any(row.name);
      if (value && !is_neutral(row.neutral, *value))
        return fields_.fail(row.name, fmt::format("not supported in this form of a request: {}", row.instead),
                            "unsupported");
    }
    for (const auto& member : fields_.object()) {
      const std::string_view name(member.key());
      if (std::ranges::find(kTranslated, name) != kTranslated.end() || member.value().is_null()) continue;
      if (std::ranges::find(kChatOnly, name, &ChatOnly::name) != std::end(kChatOnly)) continue;
      if (name == "service_tier" && member.value() == "standard_only") continue;  // there is no other here
      out_.chat[name] = member.value();
    }
  }

  Fields& fields_;
  const ServedModel& model_;
  const ParseContext& context_;
  TranslatedMessages& out_;
  std::vector<std::string> dropped_tools_;
};

// ---- errors --------------------------------------------------------------------------------------------------------

std::string client_place(std::string_view param, const TranslatedMessages& from) {
  std::string_view rest = param;
  if (const auto index = take_index("messages", &rest)) {
    const size_t client = *index < from.message_of.size() ? from.message_of[*index] : TranslatedMessages::kSystem;
    return client == TranslatedMessages::kSystem ? "system" : fmt::format("messages.{}", client);
  }
  if (const auto index = take_index("tools", &rest)) {
    const size_t client = *index < from.tool_of.size() ? from.tool_of[*index] : *index;
    if (rest.starts_with(".function.parameters")) return fmt::format("tools.{}.input_schema", client);
    if (rest.starts_with(".function")) rest.remove_prefix(std::string_view(".function").size());
    return fmt::format("tools.{}{}", client, rest);
  }
  if (param == "continue_final_message" && !from.message_of.empty())
    return fmt::format("messages.{}", from.message_of.back());
  return std::string(param);
}

ApiError for_client(ApiError error, const TranslatedMessages& from) {
  rename_param(client_place(error.param, from), &error);
  return error;
}

}  // namespace

TranslatedMessages translate_messages(Fields& fields, const ServedModel& model, const ParseContext& context,
                                      bool only_counting) {
  TranslatedMessages out;
  if (fields.object().size() > kFieldsMax) {
    fields.fail(
        invalid_field("body", fmt::format("expected at most {} fields, found {}", kFieldsMax, fields.object().size())));
    return out;
  }
  MessagesTranslator(fields, model, context, out).read(only_counting);
  return out;
}

ApiResult<ApiRequest> parse_messages(const json::object& body, const ServedModel& model, const ParseContext& context) {
  Fields fields(body);
  TranslatedMessages translated = translate_messages(fields, model, context, /*only_counting=*/false);
  if (fields.error()) return *fields.error();
  ApiResult<ApiRequest> parsed = parse_chat(translated.chat, model, context);
  if (auto* error = std::get_if<ApiError>(&parsed)) return for_client(std::move(*error), translated);
  auto& request = std::get<ApiRequest>(parsed);
  translated.form.is_cut = translated.form.max_tokens > int64_t{request.prompts[0].request.max_tokens};
  request.form.own = std::make_shared<const MessagesForm>(translated.form);
  request.form.told_stops = std::move(translated.stops);
  note_ignored(request, translated.ignored);
  return parsed;
}

ApiResult<json::object> count_messages(const json::object& body, const ServedModel& model, const ParseContext& context,
                                       ParseNotes* notes) {
  Fields fields(body);
  TranslatedMessages translated = translate_messages(fields, model, context, /*only_counting=*/true);
  if (fields.error()) return *fields.error();
  ApiResult<ApiRequest> parsed = parse_chat(translated.chat, model, context);
  if (auto* error = std::get_if<ApiError>(&parsed)) return for_client(std::move(*error), translated);
  auto& request = std::get<ApiRequest>(parsed);
  note_ignored(request, translated.ignored);
  if (notes) *notes = request;
  return json::object{{"input_tokens", request.prompts[0].request.prompt.size()}};
}

bool renders_inline_system(const ServedModel& model) {
  if (!model.chat_template || !model.tokenizer) return false;
  constexpr std::array kTurns = {std::pair{"system", "qa1"},    std::pair{"user", "qb2"},   std::pair{"system", "qc3"},
                                 std::pair{"assistant", "qd4"}, std::pair{"system", "qe5"}, std::pair{"user", "qf6"}};
  json::array messages;
  for (const auto& [role, text] : kTurns) messages.push_back({{"role", role}, {"content", text}});
  const json::object variables{{"messages", std::move(messages)}, {"add_generation_prompt", true}};
  const auto pieces = model.chat_template->render(variables, {{"bos_token", ""}, {"eos_token", ""}});
  if (!pieces) return false;
  std::string whole;
  for (const TextPiece& piece : *pieces) whole += piece.text;
  size_t at = 0;
  for (const auto& turn : kTurns) {
    const size_t found = whole.find(turn.second, at);
    if (found == std::string::npos || found != whole.rfind(turn.second)) return false;
    at = found;
  }
  return true;
}

}  // namespace llmrt::server
