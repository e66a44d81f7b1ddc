#include "server/chat_messages.h"

#include <algorithm>
#include <array>

#include "server/api_request.h"
#include "server/json_reader.h"
#include "server/known_fields.h"
#include "server/message_content.h"
#include "server/prompt_tokens.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

constexpr size_t kNameBytesMax = 256, kIdBytesMax = 1024;
constexpr size_t kCallsMax = 1024;      // of one message
constexpr int kArgumentsDepthMax = 32;  // of the JSON in a call's arguments: the template's own limit is 64 in all

bool is_empty_array(const json::value& value) {
  return value.is_array() && value.get_array().empty();
}
bool is_false(const json::value& value) {
  return value == false;
}
bool is_name(const json::value& value, std::initializer_list<std::string_view> names) {
  return value.is_string() &&
         std::find(names.begin(), names.end(), std::string_view(value.get_string())) != names.end();
}

// Known to others, and nothing that shapes a prompt here.
void read_neutral_prompt(Fields& fields) {
  fields.neutral("add_special_tokens", is_false, "false");
  fields.neutral("continue_final_message", is_false, "false");
}

// How many values there are, counted until there are more than `most`.
size_t count_values(const json::value& value, size_t most) {
  size_t count = 1;
  if (const auto* array = value.if_array()) {
    for (const json::value& item : *array)
      if ((count += count_values(item, most)) > most) break;
  } else if (const auto* object = value.if_object()) {
    for (const auto& member : *object)
      if ((count += count_values(member.value(), most)) > most) break;
  }
  return count;
}

// Whether a field is small enough for the template; absent ones are.
bool check_values(Fields& fields, std::string_view name) {
  const json::value* value = fields.any(name);
  if (!value || count_values(*value, kTemplateValuesMax) <= kTemplateValuesMax) return true;
  fields.fail(name, fmt::format("expected at most {} values in it, found more", kTemplateValuesMax));
  return false;
}

// ---- one message ---------------------------------------------------------------------------------------------------

class MessageReader {
 public:
  MessageReader(bool strict, std::vector<std::string>& ignored) : strict_(strict), ignored_(ignored) {}

  std::optional<json::object> read(const json::value& value, size_t index, Fields& outer) {
    const std::string name = fmt::format("messages[{}]", index);
    if (!value.is_object()) {
      outer.fail(name, fmt::format("expected an object, found {}", describe(value)));
      return std::nullopt;
    }
    Fields fields(value.get_object(), name + ".");
    json::object message;
    if (const auto role = read_role(fields, message)) read_rest(fields, *role, message);
    if (strict_) fields.refuse_unread();
    if (!fields.error()) return message;
    outer.fail(*fields.error());
    return std::nullopt;
  }

 private:
  std::optional<Role> read_role(Fields& fields, json::object& message) {
    struct Row {
      std::string_view name, as;  // as templates know it
      Role role;
    };
    static constexpr std::array kRoles = {
        Row{"system", "system", Role::kSystem}, Row{"developer", "system", Role::kSystem},
        Row{"user", "user", Role::kUser},       Row{"assistant", "assistant", Role::kAssistant},
        Row{"tool", "tool", Role::kTool},       Row{"function", "tool", Role::kTool}};
    const auto role = fields.string("role", 64);
    const auto row = std::find_if(kRoles.begin(), kRoles.end(), [&](const Row& one) { return role == one.name; });
    if (row == kRoles.end()) {
      fields.fail("role", fmt::format("expected system, developer, user, assistant or tool, found {}",
                                      role ? "'" + shown_name(*role) + "'" : "nothing"));
      return std::nullopt;
    }
    message["role"] = row->as;
    return row->role;
  }

  void read_rest(Fields& fields, Role role, json::object& message) {
    json::array calls;
    std::string thoughts;
    if (role == Role::kAssistant) {
      calls = read_calls(fields);
      thoughts = read_thoughts(fields);
      fields.neutral(
          "audio", [](const json::value&) { return false; }, "null");
    }
    // An agent's turn may be nothing but calls or thoughts, and a tool may have nothing to say.
    const bool says_more = !calls.empty() || !thoughts.empty() || fields.any("refusal") != nullptr;
    const bool has_null = fields.object().if_contains("content") != nullptr;
    auto content = read_content(fields, role, says_more || (role == Role::kTool && has_null), strict_, ignored_);
    if (!content) return;
    message["content"] = std::move(content->text);
    if (thoughts.empty()) thoughts = std::move(content->thoughts);
    // The name that most templates read, and the one that vLLM gives them.
    if (!thoughts.empty()) {
      message["reasoning_content"] = thoughts;
      message["reasoning"] = std::move(thoughts);
    }
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    if (const auto author = fields.string("name", kNameBytesMax)) message["name"] = *author;
    if (role != Role::kTool) return;
    if (const auto id = fields.string("tool_call_id", kIdBytesMax)) message["tool_call_id"] = *id;
  }

  std::string read_thoughts(Fields& fields) {
    auto usual = fields.string("reasoning_content", kMessageTextBytesMax);
    auto other = fields.string("reasoning", kMessageTextBytesMax);
    if (usual && !usual->empty()) return std::move(*usual);
    return other ? std::move(*other) : std::string();
  }

  json::array read_calls(Fields& fields) {
    json::array calls;
    if (const json::array* given = fields.array("tool_calls", kCallsMax)) {
      for (size_t i = 0; i < given->size() && !fields.failed(); ++i)
        read_call((*given)[i], fmt::format("tool_calls[{}]", i), fields, calls);
    }
    // The name of old, for one call without an id.
    if (const json::object* call = fields.object("function_call"); call && calls.empty()) {
      Fields inner(*call, fields.full("function_call") + ".");
      calls.push_back({{"type", "function"}, {"function", read_function(inner)}});
      if (inner.error()) fields.fail(*inner.error());
    }
    return calls;
  }

  void read_call(const json::value& value, const std::string& name, Fields& outer, json::array& calls) {
    if (!value.is_object()) return outer.fail(name, fmt::format("expected an object, found {}", describe(value)));
    Fields fields(value.get_object(), outer.full(name) + ".");
    json::object call;
    if (const auto id = fields.string("id", kIdBytesMax)) call["id"] = *id;
    const auto type = fields.string("type", 64).value_or("function");
    if (type != "function")
      fields.fail("type", fmt::format("not supported: expected function, found '{}'", shown_name(type)), "unsupported");
    call["type"] = "function";
    fields.any("index");  // of a streamed piece
    const json::object* function = fields.object("function");
    if (!function) {
      fields.fail("function", "expected an object, found nothing");
    } else {
      Fields inner(*function, fields.full("function") + ".");
      call["function"] = read_function(inner);
      if (inner.error()) fields.fail(*inner.error());
    }
    if (strict_) fields.refuse_unread();
    if (fields.error()) outer.fail(*fields.error());
    calls.emplace_back(std::move(call));
  }

  json::object read_function(Fields& fields) {
    json::object function;
    const auto name = fields.string("name", kNameBytesMax);
    if (!name || name->empty()) fields.fail("name", "expected the function's name, found nothing");
    function["name"] = name.value_or("");
    function["arguments"] = read_arguments(fields);
    if (strict_) fields.refuse_unread();
    return function;
  }

  // Templates walk over the arguments or write them as JSON: an object, where the client's text is one.
  json::value read_arguments(Fields& fields) {
    const json::value* value = fields.any("arguments");
    if (!value) return json::object();
    if (value->is_object()) return *value;
    const auto text = fields.string("arguments", kMessageTextBytesMax);
    if (!text) return json::object();
    if (std::all_of(text->begin(), text->end(), [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }))
      return json::object();
    size_t num_values = 0;
    auto parsed = read_json(*text, {kArgumentsDepthMax, argument_values_left_}, &num_values);
    argument_values_left_ -= std::min(argument_values_left_, num_values);
    if (parsed && parsed->is_object()) return std::move(*parsed);
    return json::string(*text);
  }

  bool strict_;
  std::vector<std::string>& ignored_;
  size_t argument_values_left_ = kTemplateValuesMax;  // of all messages together
};

// ---- tools ---------------------------------------------------------------------------------------------------------

// {type, function {name, description, parameters}} in the client's own order; what else it holds is dropped.
std::optional<json::object> read_tool(const json::value& value, size_t index, bool strict, Fields& outer) {
  const std::string name = fmt::format("tools[{}]", index);
  if (!value.is_object()) {
    outer.fail(name, fmt::format("expected an object, found {}", describe(value)));
    return std::nullopt;
  }
  Fields fields(value.get_object(), name + ".");
  const auto type = fields.string("type", 64);
  if (!type || *type != "function")
    fields.fail(
        "type",
        fmt::format("not supported: expected function, found {}", type ? "'" + shown_name(*type) + "'" : "nothing"),
        "unsupported");
  json::object told;
  if (const json::object* function = fields.object("function")) {
    Fields inner(*function, fields.full("function") + ".");
    const auto function_name = inner.string("name", kNameBytesMax);
    if (!function_name || function_name->empty()) inner.fail("name", "expected the function's name, found nothing");
    inner.string("description", kMessageTextBytesMax);
    inner.object("parameters");
    inner.boolean("strict");
    if (strict) inner.refuse_unread();
    if (inner.error()) fields.fail(*inner.error());
    for (const auto& member : *function)
      if (!member.value().is_null() &&
          (member.key() == "name" || member.key() == "description" || member.key() == "parameters"))
        told[member.key()] = member.value();
  } else {
    fields.fail("function", "expected an object, found nothing");
  }
  if (strict) fields.refuse_unread();
  if (fields.error()) {
    outer.fail(*fields.error());
    return std::nullopt;
  }
  return json::object{{"type", "function"}, {"function", std::move(told)}};
}

// Tools may stand in the prompt; calls are not read out of the answer yet. `choice`: tool_choice, or its old name.
void check_choice(Fields& fields, bool has_tools, std::string_view choice, bool only_counting) {
  const json::value* value = fields.any(choice);
  if (only_counting || (value && is_name(*value, {"none"}))) return;
  constexpr std::string_view kHint =
      "calls are not read out of the answer yet: send tool_choice: \"none\", and the model is "
      "told of the tools";
  if (value && !(is_name(*value, {"auto"}) && !has_tools))
    fields.fail(choice,
                fmt::format("not supported: expected none{}, found {}; {}", has_tools ? "" : " or auto",
                            value->is_string() ? "'" + shown_name(value->get_string()) + "'" : describe(*value), kHint),
                "unsupported");
  else if (has_tools)
    fields.fail("tools", fmt::format("not supported without tool_choice: {}", kHint), "unsupported");
}

// The functions of old are tools without a type.
std::optional<json::array> read_tools(Fields& fields, bool only_counting, bool strict) {
  const json::array* tools = fields.array("tools", kToolsMax);
  check_values(fields, "tools");
  fields.neutral("functions", is_empty_array, "[]; use tools");
  check_choice(fields, tools && !tools->empty(), "tool_choice", only_counting);
  check_choice(fields, false, "function_call", only_counting);
  if (!tools || tools->empty()) return std::nullopt;
  json::array checked;
  for (size_t i = 0; i < tools->size() && !fields.failed(); ++i)
    if (auto tool = read_tool((*tools)[i], i, strict, fields)) checked.emplace_back(std::move(*tool));
  return checked;
}

// ---- the template --------------------------------------------------------------------------------------------------

// The special tokens that templates spell out by name.
json::object special_strings(const Vocabulary& vocabulary) {
  json::object strings;
  const auto add = [&](const char* name, TokenId id) {
    if (id >= 0 && static_cast<size_t>(id) < vocabulary.tokens.size()) strings[name] = vocabulary.tokens[id];
  };
  add("bos_token", vocabulary.bos);
  add("eos_token", vocabulary.eos);
  add("unk_token", vocabulary.unk);
  add("pad_token", vocabulary.pad);
  return strings;
}

// How much the model is to think: a variable that some templates read. What they call "off" differs.
void read_effort(Fields& fields, json::object& context) {
  const auto effort = fields.string("reasoning_effort", 64);
  if (!effort) return;
  if (*effort != "none") {
    context.emplace("reasoning_effort", *effort);
  } else {
    context.emplace("enable_thinking", false);
    context.emplace("thinking", false);
  }
}

}  // namespace

ChatContext read_chat(Fields& fields, const ServedModel& model, const ParseContext& parse, bool only_counting,
                      std::vector<std::string>& ignored) {
  read_neutral_prompt(fields);
  json::object context;
  if (const json::object* arguments = fields.object("chat_template_kwargs");
      arguments && check_values(fields, "chat_template_kwargs")) {
    if (arguments->size() > kTemplateVariablesMax)
      fields.fail("chat_template_kwargs",
                  fmt::format("expected at most {} variables, found {}", kTemplateVariablesMax, arguments->size()));
    for (const auto& argument : *arguments) {
      if (fields.failed()) break;
      if (argument.key() == "messages" || argument.key() == "add_generation_prompt")
        fields.fail("chat_template_kwargs", "messages and add_generation_prompt have fields of their own");
      context[argument.key()] = argument.value();
    }
  }
  read_effort(fields, context);
  context.emplace("documents", nullptr);
  context["add_generation_prompt"] = fields.boolean("add_generation_prompt").value_or(true);
  if (auto tools = read_tools(fields, only_counting, parse.strict_fields)) context["tools"] = std::move(*tools);

  const json::array* messages = fields.array("messages", kMessagesMax);
  if (!messages || messages->empty()) {
    fields.fail("messages", "expected at least one message, found none");
    return context;
  }
  MessageReader reader(parse.strict_fields, ignored);
  json::array checked;
  for (size_t i = 0; i < messages->size() && !fields.failed(); ++i) {
    if (parse.is_cancelled()) fields.fail(client_has_gone());
    if (auto message = reader.read((*messages)[i], i, fields)) checked.emplace_back(std::move(*message));
  }
  context["messages"] = std::move(checked);
  if (!model.chat_template || !model.tokenizer) fields.fail("messages", model.no_chat_reason, "unsupported");
  return context;
}

std::vector<int32_t> render_chat(Fields& fields, const ServedModel& model, const ParseContext& parse,
                                 const ChatContext& chat) {
  if (parse.is_cancelled()) fields.fail(client_has_gone());
  if (fields.failed()) return {};
  auto pieces = model.chat_template->render(chat, special_strings(model.tokenizer->vocabulary()), {}, parse.cancelled);
  if (!pieces) {
    ApiError error = to_api_error(pieces.error());  // 503 where memory ran out or the rendering was cancelled
    error.param = fields.full("messages");
    error.message = fmt::format("{}: {}", error.param, error.message);
    fields.fail(std::move(error));
    return {};
  }
  size_t num_bytes = 0;
  for (const TextPiece& piece : *pieces) num_bytes += piece.text.size();
  if (!check_text_bytes(fields, model, "messages", num_bytes)) return {};
  return encode_rendered(fields, model, parse, "messages", *pieces);
}

}  // namespace llmrt::server
