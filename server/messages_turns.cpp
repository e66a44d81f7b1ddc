#include "server/messages_turns.h"

#include <algorithm>
#include <array>
#include <utility>

#include "server/known_fields.h"
#include "server/message_content.h"
#include "server/messages_request.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

constexpr size_t kShortBytesMax = 1024;  // of ids, names, types

// What clients may send in any block, and what says nothing here.
constexpr std::array kBlockHints = {"cache_control", "citations", "caller", "type", "signature", "id"};

// Blocks that only Anthropic's own servers make or read: the conversation goes on without them.
bool is_of_server(std::string_view type) {
  constexpr std::array kTypes = {"server_tool_use", "mcp_tool_use", "container_upload", "compaction", "fallback"};
  if (std::ranges::find(kTypes, type) != kTypes.end()) return true;
  return type.ends_with("_tool_result") && type != "tool_result";
}

json::object text_part(std::string_view text) {
  return {{"type", "text"}, {"text", text}};
}

void append_block_line(std::string_view line, std::string* text) {
  if (line.empty()) return;
  if (!text->empty()) *text += '\n';
  *text += line;
}

// Without its first line where that is the header.
std::string_view without_billing(std::string_view text) {
  if (!text.starts_with(kBillingHeader)) return text;
  const size_t end = text.find('\n');
  return end == text.npos ? std::string_view() : text.substr(end + 1);
}

bool begins_as_error(std::string_view text) {
  constexpr std::string_view kError = "error";
  return text.size() >= kError.size() && std::equal(kError.begin(), kError.end(), text.begin(), [](char a, char b) {
           return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b);
         });
}

}  // namespace

// What one message, or the result of one tool, says.
struct TurnBuilder::Blocks {
  enum class Place : uint8_t { kSystem, kUser, kAssistant, kResult };
  Place place = Place::kUser;
  json::array parts = {};
  json::array calls = {};
  std::vector<json::object> results = {};  // turns of tools
};

void TurnBuilder::add_turn(json::object message, size_t index) {
  messages_.emplace_back(std::move(message));
  origins_.push_back(index);
}

// The last turn where it has this role: two in a row are one to Anthropic's models, and many templates refuse two.
json::object& TurnBuilder::turn_of(std::string_view role, size_t index) {
  if (messages_.empty() || messages_.back().get_object().at("role").get_string() != role)
    add_turn({{"role", role}, {"content", json::array()}}, index);
  return messages_.back().get_object();
}

bool TurnBuilder::ends_with_assistant() const {
  return !messages_.empty() && messages_.back().get_object().at("role") == "assistant";
}
bool TurnBuilder::last_has_calls() const {
  return !messages_.empty() && messages_.back().get_object().if_contains("tool_calls") != nullptr;
}
bool TurnBuilder::last_has_text() const {
  if (messages_.empty()) return false;
  for (const json::value& part : messages_.back().get_object().at("content").get_array()) {
    const json::value* text = part.get_object().if_contains("text");
    if (text && !text->get_string().empty()) return true;
  }
  return false;
}
void TurnBuilder::drop_last() {
  messages_.pop_back();
  origins_.pop_back();
}

void TurnBuilder::add_system(Fields& fields) {
  const json::value* system = fields.any("system");
  if (!system) return;
  Blocks blocks{.place = Blocks::Place::kSystem};
  read_blocks(fields, "system", *system, &blocks);
  if (fields.failed()) return;
  if (!rules_.keeps_client_headers && !blocks.parts.empty()) {
    json::string& first = blocks.parts[0].get_object().at("text").get_string();
    const std::string rest(without_billing(first));
    if (rest.size() < first.size()) first = rest;
    if (first.empty()) blocks.parts.erase(blocks.parts.begin());
  }
  const bool says_nothing = std::ranges::all_of(
      blocks.parts, [](const json::value& part) { return part.get_object().at("text").get_string().empty(); });
  if (!says_nothing) add_turn({{"role", "system"}, {"content", std::move(blocks.parts)}}, TranslatedMessages::kSystem);
}

void TurnBuilder::add_message(Fields& outer, const json::value& value, size_t index) {
  const std::string place = fmt::format("messages.{}", index);
  if (!value.is_object()) return outer.fail(place, fmt::format("expected an object, found {}", describe(value)));
  Fields fields(value.get_object(), place + ".");
  const auto role = fields.string("role", kShortBytesMax);
  const json::value* content = fields.any("content");
  const bool is_known = role == "user" || role == "assistant" || role == "system";
  if (!is_known)
    fields.fail("role", fmt::format("expected user, assistant or system, found {}",
                                    role ? "'" + shown_name(*role) + "'" : "nothing"));
  else if (!content)
    fields.fail("content", "expected a string or an array of blocks, found nothing");
  if (fields.error()) return outer.fail(*fields.error());
  Blocks blocks{.place = *role == "user"        ? Blocks::Place::kUser
                         : *role == "assistant" ? Blocks::Place::kAssistant
                                                : Blocks::Place::kSystem};
  read_blocks(fields, "content", *content, &blocks);
  if (rules_.strict) fields.refuse_unread();
  if (fields.error()) return outer.fail(*fields.error());

  for (json::object& result : blocks.results) add_turn(std::move(result), index);
  if (blocks.place == Blocks::Place::kSystem) {
    if (messages_.empty() || rules_.shows_inline_system)
      return add_turn({{"role", "system"}, {"content", std::move(blocks.parts)}}, index);
    std::string text;
    for (const json::value& part : blocks.parts) append_block_line(part.get_object().at("text").get_string(), &text);
    if (!text.empty())
      turn_of("user", index)["content"].get_array().push_back(
          text_part("<system-reminder>\n" + text + "\n</system-reminder>"));
    return;
  }
  if (blocks.parts.empty() && blocks.calls.empty() && !blocks.results.empty()) return;
  json::object& turn = turn_of(*role, index);
  json::array& parts = turn.at("content").get_array();
  for (json::value& part : blocks.parts) parts.push_back(std::move(part));
  if (blocks.calls.empty()) return;
  if (!turn.contains("tool_calls")) turn["tool_calls"] = json::array();
  json::array& calls = turn.at("tool_calls").get_array();
  for (json::value& call : blocks.calls) calls.push_back(std::move(call));
}

// ---- blocks --------------------------------------------------------------------------------------------------------

// `place`: the member of `message` that `content` is.
void TurnBuilder::read_blocks(Fields& message, const std::string& place, const json::value& content, Blocks* out) {
  if (content.is_string()) {
    out->parts.push_back(text_part(content.get_string()));
    return;
  }
  if (!content.is_array())
    return message.fail(place, fmt::format("expected a string or an array of blocks, found {}", describe(content)));
  const json::array& blocks = content.get_array();
  if (blocks.size() > kMessageBlocksMax)
    return message.fail(place, fmt::format("expected at most {} blocks, found {}", kMessageBlocksMax, blocks.size()));
  for (size_t i = 0; i < blocks.size() && !message.failed(); ++i) {
    const std::string name = fmt::format("{}.{}", place, i);
    if (blocks[i].is_string()) {  // as some clients have it
      out->parts.push_back(text_part(blocks[i].get_string()));
    } else if (!blocks[i].is_object()) {
      message.fail(name, fmt::format("expected an object, found {}", describe(blocks[i])));
    } else {
      Fields block(blocks[i].get_object(), message.full(name) + ".");
      read_block(block, out);
      if (block.error()) message.fail(*block.error());
    }
  }
}

void TurnBuilder::finish(Fields& block) {
  for (const char* name : kBlockHints) block.any(name);
  if (rules_.strict) block.refuse_unread();
}

void TurnBuilder::read_block(Fields& block, Blocks* out) {
  using Place = Blocks::Place;
  const std::string type = block.string("type", kShortBytesMax).value_or("text");
  if (type == "text") return add_text(block, out);
  if (out->place == Place::kAssistant && type == "thinking") {
    if (const auto thought = block.string("thinking", kMessageTextBytesMax); thought && !thought->empty())
      out->parts.push_back({{"type", "thinking"}, {"thinking", *thought}});
    return finish(block);
  }
  if (out->place == Place::kAssistant && type == "redacted_thinking") return;
  if (out->place == Place::kAssistant && type == "tool_use") return add_call(block, out);
  if (out->place == Place::kUser && type == "tool_result") return add_result(block, out);
  const bool is_of_user = out->place == Place::kUser || out->place == Place::kResult;
  if (is_of_user && type == "document") return add_document(block, out);
  if (is_of_user && type == "search_result") return add_search_result(block, out);
  if (out->place == Place::kResult && type == "tool_reference") {
    const auto name = block.string("tool_name", kShortBytesMax);
    if (!name) block.fail("tool_name", "expected a string, found nothing");
    if (name) out->parts.push_back(text_part(*name));
    return finish(block);
  }
  if (is_of_server(type)) return add_ignored(ignored_, "content." + type);
  refuse_or_drop(block, type, out);
}

// What is no text is dropped from the results of tools, as in chats, so that an agent's conversation goes on.
void TurnBuilder::refuse_or_drop(Fields& block, std::string_view type, Blocks* out) {
  const bool is_known = type == "image" || type == "document";
  if (out->place == Blocks::Place::kResult) return add_ignored(ignored_, "tool_content." + std::string(type));
  if (is_known)
    return block.fail("type", fmt::format("not supported: {}: this model reads text only", type), "unsupported");
  const std::string_view expected = out->place == Blocks::Place::kSystem      ? "text"
                                    : out->place == Blocks::Place::kAssistant ? "text, thinking or tool_use"
                                                                              : "text or tool_result";
  block.fail("type", fmt::format("not supported: expected {}, found '{}'", expected, shown_name(type)), "unsupported");
}

void TurnBuilder::add_text(Fields& block, Blocks* out) {
  const auto text = block.string("text", kMessageTextBytesMax);
  if (!text) block.fail("text", "expected a string, found nothing");
  finish(block);
  if (text && !block.failed()) out->parts.push_back(text_part(*text));
}

// A string, or an array of text blocks: their lines behind `text`.
void TurnBuilder::read_texts(Fields& block, std::string_view name, std::string* text) {
  const json::value* content = block.any(name);
  if (!content) return block.fail(name, "expected a string or an array of text blocks, found nothing");
  Blocks inner{.place = Blocks::Place::kSystem};  // text alone
  read_blocks(block, std::string(name), *content, &inner);
  for (const json::value& part : inner.parts) append_block_line(part.get_object().at("text").get_string(), text);
}

void TurnBuilder::add_document(Fields& block, Blocks* out) {
  std::string text;
  append_block_line(block.string("title", kMessageTextBytesMax).value_or(""), &text);
  append_block_line(block.string("context", kMessageTextBytesMax).value_or(""), &text);
  const json::object* source = block.object("source");
  if (!source) return block.fail("source", "expected an object, found nothing");
  Fields inner(*source, block.full("source") + ".");
  const std::string type = inner.string("type", kShortBytesMax).value_or("");
  if (type == "text") {
    const auto data = inner.string("data", kMessageTextBytesMax);
    if (!data) inner.fail("data", "expected a string, found nothing");
    append_block_line(data.value_or(""), &text);
    inner.any("media_type");
  } else if (type == "content") {
    read_texts(inner, "content", &text);
  } else if (out->place == Blocks::Place::kResult) {
    return add_ignored(ignored_, "tool_content.document");
  } else {
    inner.fail("type",
               fmt::format("not supported: a document of source '{}': expected text or content, this model reads text "
                           "only",
                           shown_name(type)),
               "unsupported");
  }
  if (rules_.strict) inner.refuse_unread();
  if (inner.error()) return block.fail(*inner.error());
  finish(block);
  out->parts.push_back(text_part(text));
}

void TurnBuilder::add_search_result(Fields& block, Blocks* out) {
  std::string text;
  append_block_line(block.string("title", kMessageTextBytesMax).value_or(""), &text);
  append_block_line(block.string("source", kMessageTextBytesMax).value_or(""), &text);
  read_texts(block, "content", &text);
  finish(block);
  if (!block.failed()) out->parts.push_back(text_part(text));
}

void TurnBuilder::add_call(Fields& block, Blocks* out) {
  const auto id = block.string("id", kShortBytesMax), name = block.string("name", kShortBytesMax);
  if (!id || id->empty()) block.fail("id", "expected a string, found nothing");
  if (!name || name->empty()) block.fail("name", "expected the tool's name, found nothing");
  const json::object* input = block.object("input");
  finish(block);
  if (block.failed()) return;
  out->calls.push_back({{"id", *id},
                        {"type", "function"},
                        {"function", {{"name", *name}, {"arguments", input ? *input : json::object()}}}});
}

void TurnBuilder::add_result(Fields& block, Blocks* out) {
  const auto id = block.string("tool_use_id", kShortBytesMax);
  if (!id || id->empty()) block.fail("tool_use_id", "expected the id of a call, found nothing");
  Blocks said{.place = Blocks::Place::kResult};
  if (const json::value* content = block.any("content")) read_blocks(block, "content", *content, &said);
  const bool is_error = block.boolean("is_error").value_or(false);
  finish(block);
  if (block.failed()) return;
  if (is_error && said.parts.empty()) said.parts.push_back(text_part("Error"));
  json::string* first = is_error ? &said.parts[0].get_object().at("text").get_string() : nullptr;
  if (first && !begins_as_error(*first)) *first = "Error: " + std::string(*first);
  out->results.push_back({{"role", "tool"}, {"tool_call_id", *id}, {"content", std::move(said.parts)}});
}

}  // namespace llmrt::server
