#include "server/chat_messages.h"

#include <algorithm>
#include <array>

#include "core/chat/call_ids.h"
#include "server/api_request.h"
#include "server/json_reader.h"
#include "server/known_fields.h"
#include "server/message_content.h"
#include "server/prompt_tokens.h"
#include "server/thinking.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

constexpr size_t kNameBytesMax = 256, kIdBytesMax = 1024;
constexpr size_t kCallsMax = 1024;      // of one message
constexpr int kArgumentsDepthMax = 32;  // of the JSON in a call's arguments: the template's own limit is 64 in all

bool is_false(const json::value& value) {
  return value == false;
}

// Known to others, and nothing that shapes a prompt here.
void read_neutral_prompt(Fields& fields) {
  fields.neutral("add_special_tokens", is_false, "false");
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
  // format: whose template reads the ids of calls; may be null.
  MessageReader(bool strict, const ChatFormat* format, std::vector<std::string>& ignored)
      : strict_(strict), format_(format), ignored_(ignored) {}

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
    if (const auto id = fields.string("tool_call_id", kIdBytesMax)) message["tool_call_id"] = shown_id(*id);
  }

  std::string shown_id(const std::string& id) const { return format_ ? prompt_call_id(*format_, id) : id; }

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
    if (const auto id = fields.string("id", kIdBytesMax)) call["id"] = shown_id(*id);
    const auto type = fields.string("type", 64).value_or("function");
    if (type != "function" && type != "custom")
      fields.fail("type", fmt::format("expected function or custom, found '{}'", shown_name(type)));
    call["type"] = "function";
    fields.any("index");  // of a streamed piece
    const json::object* function = fields.object("function");
    if (type == "custom") {
      call["function"] = read_custom(fields);
    } else if (!function) {
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

  // A custom call is one of a function with one string, to the model.
  json::object read_custom(Fields& fields) {
    const json::object* custom = fields.object("custom");
    if (!custom) {
      fields.fail("custom", "expected an object, found nothing");
      return {};
    }
    Fields inner(*custom, fields.full("custom") + ".");
    const auto name = inner.string("name", kNameBytesMax), input = inner.string("input", kMessageTextBytesMax);
    if (!name || name->empty()) inner.fail("name", "expected the tool's name, found nothing");
    if (inner.error()) fields.fail(*inner.error());
    return {{"name", name.value_or("")}, {"arguments", {{"input", input.value_or("")}}}};
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
  const ChatFormat* format_;
  std::vector<std::string>& ignored_;
  size_t argument_values_left_ = kTemplateValuesMax;  // of all messages together
};

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

// The last bytes of a prompt: enough for its last turn's beginning, unless that is very long.
std::string tail_of(std::span<const TextPiece> pieces) {
  constexpr size_t kTailBytes = 64u << 10;
  size_t first = pieces.size();
  for (size_t bytes = 0; first > 0 && bytes < kTailBytes;) bytes += pieces[--first].text.size();
  std::string tail;
  for (const TextPiece& piece : pieces.subspan(first)) tail += piece.text;
  return tail;
}

// Documents for templates that show them.
void read_documents(Fields& fields, json::object& context) {
  const json::array* documents = fields.array("documents", kDocumentsMax);
  if (!documents || !check_values(fields, "documents")) return;
  for (const json::value& document : *documents) {
    if (!document.is_object() && !document.is_string())
      return fields.fail("documents", fmt::format("expected objects or strings, found {}", describe(document)));
  }
  if (!documents->empty()) context["documents"] = *documents;
}

// The prompt ends behind the last message's text, which the answer goes on with.
void cut_behind_last_message(Fields& fields, const ChatContext& chat, std::vector<TextPiece>* pieces) {
  const json::object& last = chat.at("messages").get_array().back().get_object();
  const json::value* content = last.if_contains("content");
  std::string_view text = content && content->is_string() ? std::string_view(content->get_string()) : "";
  const size_t begin = std::min(text.find_first_not_of(" \n\r\t"), text.size());
  text = text.substr(begin, text.find_last_not_of(" \n\r\t") + 1 - begin);
  std::string whole;
  for (const TextPiece& piece : *pieces) whole += piece.text;
  const size_t found = text.empty() ? std::string::npos : whole.rfind(text);
  if (found == std::string::npos) {
    return fields.fail("continue_final_message",
                       "expected the last message's text in the rendered prompt, found none: the template changes it");
  }
  size_t left = found + text.size();
  for (size_t i = 0; i < pieces->size(); ++i) {
    TextPiece& piece = (*pieces)[i];
    piece.text.resize(std::min(piece.text.size(), left));
    left -= piece.text.size();
    if (left == 0) pieces->resize(i + 1);
  }
}

}  // namespace

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

ReadChat read_chat(Fields& fields, const ServedModel& model, const ParseContext& parse, bool only_counting,
                   std::vector<std::string>& ignored) {
  read_neutral_prompt(fields);
  ReadChat chat;
  json::object& context = chat.context;
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
  if (const auto thinks = fields.boolean("enable_thinking")) {
    context["enable_thinking"] = *thinks;
    context["thinking"] = *thinks;
  }
  read_documents(fields, context);
  context.emplace("documents", nullptr);
  chat.continues = fields.boolean("continue_final_message").value_or(false);
  const auto prompts = fields.boolean("add_generation_prompt");
  if (chat.continues && prompts.value_or(false))
    fields.fail("continue_final_message", "expected only with add_generation_prompt: false");
  context["add_generation_prompt"] = prompts.value_or(!chat.continues);
  json::array tools;
  check_values(fields, "tools");
  read_thought_budget(fields, model, fields.object("chat_template_kwargs"), only_counting, &chat.structure);
  read_tools(fields, model, only_counting, parse.strict_fields, &chat.structure, &tools);
  if (!tools.empty()) context["tools"] = std::move(tools);

  const json::array* messages = fields.array("messages", kMessagesMax);
  if (!messages || messages->empty()) {
    fields.fail("messages", "expected at least one message, found none");
    return chat;
  }
  MessageReader reader(parse.strict_fields, model.chat_format ? model.chat_format->format : nullptr, ignored);
  json::array checked;
  for (size_t i = 0; i < messages->size() && !fields.failed(); ++i) {
    if (parse.is_cancelled()) fields.fail(client_has_gone());
    if (auto message = reader.read((*messages)[i], i, fields)) checked.emplace_back(std::move(*message));
  }
  if (chat.continues && !fields.failed() && checked.back().at("role") != "assistant")
    fields.fail("continue_final_message", "expected a last message of role assistant");
  context["messages"] = std::move(checked);
  if (!model.chat_template || !model.tokenizer) fields.fail("messages", model.no_chat_reason, "unsupported");
  return chat;
}

std::vector<int32_t> render_chat(Fields& fields, const ServedModel& model, const ParseContext& parse, ReadChat* chat) {
  if (parse.is_cancelled()) fields.fail(client_has_gone());
  if (fields.failed()) return {};
  auto pieces =
      model.chat_template->render(chat->context, special_strings(model.tokenizer->vocabulary()), {}, parse.cancelled);
  if (!pieces) {
    ApiError error = to_api_error(pieces.error());  // 503 where memory ran out or the rendering was cancelled
    error.param = fields.full("messages");
    error.message = fmt::format("{}: {}", error.param, error.message);
    fields.fail(std::move(error));
    return {};
  }
  if (chat->continues) cut_behind_last_message(fields, chat->context, &*pieces);
  if (fields.failed()) return {};
  size_t num_bytes = 0;
  for (const TextPiece& piece : *pieces) num_bytes += piece.text.size();
  if (!check_text_bytes(fields, model, "messages", num_bytes)) return {};
  if (model.chat_format) chat->structure.start = answer_start(*model.chat_format->format, tail_of(*pieces));
  return encode_rendered(fields, model, parse, "messages", *pieces);
}

}  // namespace llmrt::server
