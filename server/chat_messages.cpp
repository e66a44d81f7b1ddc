#include "server/chat_messages.h"

#include <algorithm>
#include <array>

#include "server/api_request.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

constexpr size_t kTextBytesMax = 64u << 20;  // the body's own limit comes first

// A string, or parts of type text joined by newlines, as other servers do it.
std::optional<std::string> read_content(Fields& fields) {
  const json::value* content = fields.any("content");
  if (!content) {
    fields.fail("content", "expected a string or an array of parts, found nothing");
    return std::nullopt;
  }
  if (content->is_string()) return std::string(content->get_string());
  if (!content->is_array()) {
    fields.fail("content", fmt::format("expected a string or an array of parts, found {}", describe(*content)));
    return std::nullopt;
  }
  std::string text;
  for (size_t i = 0; i < content->get_array().size(); ++i) {
    const json::value& part = content->get_array()[i];
    const std::string name = fmt::format("content[{}]", i);
    if (!part.is_object()) {
      fields.fail(name, fmt::format("expected an object, found {}", describe(part)));
      return std::nullopt;
    }
    Fields inner(part.get_object(), fields.full(name) + ".");
    const auto type = inner.string("type", 64);
    if (type && *type != "text") {
      inner.fail("type", fmt::format("not supported: expected text, found '{}'", shown_name(*type)), "unsupported");
    }
    const auto piece = inner.string("text", kTextBytesMax);
    if (!piece) inner.fail("text", "expected a string, found nothing");
    if (const auto& error = inner.finish()) {
      fields.fail(*error);
      return std::nullopt;
    }
    if (i > 0) text += '\n';
    text += *piece;
  }
  return text;
}

bool is_empty_array(const json::value& value) {
  return value.is_array() && value.get_array().empty();
}

// Known to others, and nothing that shapes a prompt here.
void read_neutral_prompt(Fields& fields) {
  const auto is_false = [](const json::value& value) { return value == false; };
  fields.neutral("tools", is_empty_array, "[]");
  fields.neutral("add_special_tokens", is_false, "false");
  fields.neutral("continue_final_message", is_false, "false");
  for (const char* name : {"chat_template", "documents"})
    fields.neutral(
        name, [](const json::value&) { return false; }, "null");
}

std::optional<json::object> read_message(const json::value& value, size_t index, Fields& outer) {
  const std::string name = fmt::format("messages[{}]", index);
  if (!value.is_object()) {
    outer.fail(name, fmt::format("expected an object, found {}", describe(value)));
    return std::nullopt;
  }
  Fields fields(value.get_object(), name + ".");
  json::object message;
  const auto role = fields.string("role", 64);
  constexpr std::array kRoles = {"system", "developer", "user", "assistant", "tool"};
  if (!role || std::find(kRoles.begin(), kRoles.end(), *role) == kRoles.end())
    fields.fail("role", fmt::format("expected system, developer, user, assistant or tool, found {}",
                                    role ? "'" + shown_name(*role) + "'" : "nothing"));
  else
    message["role"] = *role == "developer" ? "system" : *role;  // the newer name; templates know the older
  if (auto content = read_content(fields)) message["content"] = std::move(*content);
  if (const auto author = fields.string("name", 256)) message["name"] = *author;
  if (const auto id = fields.string("tool_call_id", 256)) message["tool_call_id"] = *id;
  fields.neutral("tool_calls", is_empty_array, "[]");
  fields.neutral(
      "function_call", [](const json::value&) { return false; }, "null");
  fields.neutral(
      "refusal", [](const json::value&) { return false; }, "null");
  fields.neutral(
      "audio", [](const json::value&) { return false; }, "null");
  fields.neutral("annotations", is_empty_array, "[]");
  if (const auto& error = fields.finish()) {
    outer.fail(*error);
    return std::nullopt;
  }
  return message;
}

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

}  // namespace

std::vector<int32_t> read_chat_prompt(Fields& fields, const ServedModel& model) {
  read_neutral_prompt(fields);
  json::object context;
  context["tools"] = nullptr;
  context["documents"] = nullptr;
  if (const json::object* arguments = fields.object("chat_template_kwargs")) {
    for (const auto& argument : *arguments) {
      if (argument.key() == "messages" || argument.key() == "add_generation_prompt")
        fields.fail("chat_template_kwargs", "messages and add_generation_prompt have fields of their own");
      context[argument.key()] = argument.value();
    }
  }
  context["add_generation_prompt"] = fields.boolean("add_generation_prompt").value_or(true);

  const json::array* messages = fields.array("messages", 16384);
  if (!messages || messages->empty()) {
    fields.fail("messages", "expected at least one message, found none");
    return {};
  }
  json::array checked;
  for (size_t i = 0; i < messages->size(); ++i) {
    auto message = read_message((*messages)[i], i, fields);
    if (!message) return {};
    checked.emplace_back(std::move(*message));
  }
  context["messages"] = std::move(checked);
  if (fields.failed()) return {};

  if (!model.chat_template || !model.tokenizer) {
    fields.fail("messages", model.no_chat_reason, "unsupported");
    return {};
  }
  auto pieces = model.chat_template->render(context, special_strings(model.tokenizer->vocabulary()));
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
  // The template itself writes what begins a text; nothing is added to it.
  return model.tokenizer->encode_pieces(*pieces, /*add_bos=*/false);
}

}  // namespace llmrt::server
