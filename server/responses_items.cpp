// The items of /v1/responses' `input`: messages, calls, their results and thoughts, to messages of a chat.
#include <algorithm>
#include <array>

#include "server/known_fields.h"
#include "server/message_content.h"
#include "server/responses_request.h"
#include "server/sealed_thought.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

constexpr size_t kShortBytesMax = 1024;
constexpr size_t kToolNameBytesMax = 256;  // that a message may have
// What other services' tools leave behind; nothing in it can be told to a model here.
constexpr std::array<std::string_view, 10> kSkipped = {
    "web_search_call",  "image_generation_call", "compaction",     "tool_search_call",      "tool_search_output",
    "additional_tools", "file_search_call",      "mcp_list_tools", "code_interpreter_call", "compaction_trigger"};

class ItemsReader {
 public:
  ItemsReader(Fields& outer, const InputRules& rules, ClientPaths* paths, std::vector<std::string>& ignored)
      : outer_(outer), rules_(rules), strict_(rules.strict), paths_(*paths), ignored_(ignored) {}

  void add_system(std::string text, const std::string& path) {
    // Templates want one system message, at the beginning; agents send instructions and messages of developers there.
    if (messages_.size() == 1 && only_system_) {
      json::string& first = messages_[0].get_object()["content"].get_string();
      first.append("\n\n").append(text);
      return;
    }
    // Moved to the beginning it would change the prefix that the cache knows.
    if (messages_.empty() || rules_.shows_inline_system)
      add_message("system", json::string(text), path, "content");
    else
      add_message("user", json::string("<system-reminder>\n" + text + "\n</system-reminder>"), path, "content");
  }
  void add_user(std::string_view text, const std::string& path) { add_message("user", json::string(text), path, ""); }
  void read(const json::value& value, size_t index) {
    const std::string place = fmt::format("input[{}]", index);
    if (!value.is_object()) return outer_.fail(place, fmt::format("expected an object, found {}", describe(value)));
    Fields fields(value.get_object(), place + ".");
    for (const char* name : {"id", "status", "phase"}) fields.any(name);
    std::string type = fields.string("type", kShortBytesMax).value_or("");
    if (type.empty() && value.get_object().contains("role")) type = "message";
    const bool is_skipped = std::ranges::find(kSkipped, type) != kSkipped.end();
    if (is_skipped)
      add_ignored(ignored_, "input." + type);
    else
      read_item(fields, type, place);
    if (strict_ && !is_skipped) fields.refuse_unread();
    if (fields.error()) outer_.fail(*fields.error());
  }
  json::array take() { return std::move(messages_); }

 private:
  void read_item(Fields& fields, const std::string& type, const std::string& place) {
    if (type == "message") return read_message(fields, place);
    if (type == "reasoning") return read_reasoning(fields);
    if (type == "function_call") return read_call(fields, place, /*is_custom=*/false);
    if (type == "custom_tool_call") return read_call(fields, place, /*is_custom=*/true);
    if (type == "function_call_output" || type == "custom_tool_call_output") return read_output(fields, place);
    if (type == "item_reference")
      return fields.fail("type", "not supported: nothing is stored here: send the item itself", "unsupported");
    fields.fail("type",
                fmt::format("not supported: expected message, reasoning, function_call, function_call_output, "
                            "custom_tool_call or custom_tool_call_output, found {}",
                            type.empty() ? "nothing" : "'" + shown_name(type) + "'"),
                "unsupported");
  }

  void read_message(Fields& fields, const std::string& place) {
    const std::string role = fields.string("role", kShortBytesMax).value_or("");
    const json::value* content = fields.any("content");
    if (role == "user") {
      if (content) return add_message("user", *content, place, "content");
      return fields.fail("content", "expected a string or an array of parts, found nothing");
    }
    if (role != "assistant" && role != "system" && role != "developer")
      return fields.fail("role", fmt::format("expected user, assistant, system or developer, found {}",
                                             role.empty() ? "nothing" : "'" + shown_name(role) + "'"));
    std::string text = plain_text(fields, content, role == "assistant");
    if (fields.failed()) return;
    if (role == "assistant")
      append_line(turn(), "content", std::move(text));
    else
      add_system(std::move(text), place);
  }

  // The text of a string, or of parts that are all text.
  static std::string plain_text(Fields& fields, const json::value* content, bool of_assistant) {
    if (content && content->is_string()) return std::string(content->get_string());
    if (!content || !content->is_array()) {
      fields.fail("content", fmt::format("expected a string or an array of parts, found {}",
                                         content ? describe(*content) : "nothing"));
      return {};
    }
    std::string text;
    for (size_t i = 0; i < content->get_array().size(); ++i) {
      const json::value& value = content->get_array()[i];
      const std::string place = fmt::format("content[{}]", i);
      if (!value.is_object()) {
        fields.fail(place, fmt::format("expected an object, found {}", describe(value)));
        return {};
      }
      Fields part(value.get_object(), fields.full(place) + ".");
      const std::string type = part.string("type", kShortBytesMax).value_or("text");
      const bool is_refusal = type == "refusal" && of_assistant;
      if (!is_refusal && type != "text" && type != "input_text" && type != "output_text")
        part.fail("type", fmt::format("not supported: expected text, found '{}'", shown_name(type)), "unsupported");
      const char* member = is_refusal ? "refusal" : "text";
      const auto line = part.string(member, kMessageTextBytesMax);
      if (!line) part.fail(member, "expected a string, found nothing");
      if (part.error()) {
        fields.fail(*part.error());
        return {};
      }
      if (i > 0) text += '\n';
      text += *line;
    }
    return text;
  }

  // Our own sealed thought, or what the item says in the open; what another service has sealed says nothing here.
  void read_reasoning(Fields& fields) {
    const std::string sealed = fields.string("encrypted_content", kMessageTextBytesMax).value_or("");
    const json::array* content = fields.array("content", kInputItemsMax);
    fields.array("summary", kInputItemsMax);
    std::string thought;
    for (size_t i = 0; content && i < content->size() && !fields.failed(); ++i) {
      const json::object* part = (*content)[i].if_object();
      const json::value* text = part ? part->if_contains("text") : nullptr;
      if (!text || !text->is_string()) {
        fields.fail(fmt::format("content[{}]", i), "expected an object with a text");
        continue;
      }
      if (!thought.empty()) thought += '\n';
      thought += std::string_view(text->get_string());
    }
    if (fields.failed()) return;
    if (auto opened = open_thought(sealed)) thought = std::move(*opened);
    if (!thought.empty()) append_line(turn(), "reasoning_content", std::move(thought));
  }

  void read_call(Fields& fields, const std::string& place, bool is_custom) {
    const std::string id = fields.string("call_id", kShortBytesMax).value_or("");
    const std::string given = fields.string("name", kShortBytesMax).value_or("");
    const std::string name = flat_name(fields.string("namespace", kShortBytesMax).value_or(""), given);
    const char* member = is_custom ? "input" : "arguments";
    const auto said = fields.string(member, kMessageTextBytesMax);
    if (id.empty()) fields.fail("call_id", "expected the call's id, found nothing");
    if (given.empty()) fields.fail("name", "expected the tool's name, found nothing");
    if (!said) fields.fail(member, "expected a string, found nothing");
    if (fields.failed()) return;
    const char* kind = is_custom ? "custom" : "function";
    json::value& calls = turn()["tool_calls"];
    if (!calls.is_array()) calls = json::array();
    calls.get_array().push_back({{"id", id}, {"type", kind}, {kind, {{"name", name}, {member, *said}}}});
    paths_.add_call(place);
    names_[id] = name;
  }

  void read_output(Fields& fields, const std::string& place) {
    const std::string id = fields.string("call_id", kShortBytesMax).value_or("");
    const json::value* output = fields.any("output");
    for (const char* known : {"name", "namespace", "success"}) fields.any(known);
    if (id.empty()) fields.fail("call_id", "expected the call's id, found nothing");
    if (!output || (!output->is_string() && !output->is_array()))
      fields.fail("output", fmt::format("expected a string or an array of parts, found {}",
                                        output ? describe(*output) : "nothing"));
    if (fields.failed()) return;
    add_message("tool", *output, place, "output");
    json::object& message = messages_.back().get_object();
    message["tool_call_id"] = id;
    const auto name = names_.find(id);
    if (name != names_.end() && name->second.size() <= kToolNameBytesMax) message["name"] = name->second;
  }

  // The assistant's turn that is open: what it thought, said and called since anybody else spoke is one message.
  json::object& turn() {
    if (!in_turn_) {
      add_message("assistant", nullptr, "input", "content");
      in_turn_ = true;
    }
    return messages_.back().get_object();
  }
  static void append_line(json::object& message, std::string_view name, std::string text) {
    json::value& value = message[name];
    if (value.is_string() && !value.get_string().empty())
      value.get_string().append("\n").append(text);
    else
      value = json::string(text);
  }
  void add_message(std::string_view role, json::value content, const std::string& path, std::string_view member) {
    messages_.push_back({{"role", role}, {"content", std::move(content)}});
    paths_.add_message(path, member);
    in_turn_ = false;
    only_system_ = only_system_ && role == "system";
  }

  Fields& outer_;
  const InputRules rules_;
  const bool strict_;
  ClientPaths& paths_;
  std::vector<std::string>& ignored_;
  json::array messages_;
  bool in_turn_ = false, only_system_ = true;
  KeyedMap<std::string> names_;  // of the tools, by the ids of their calls
};

}  // namespace

json::array read_input(Fields& fields, const InputRules& rules, ClientPaths* paths, std::vector<std::string>& ignored) {
  ItemsReader reader(fields, rules, paths, ignored);
  if (auto text = fields.string("instructions", kMessageTextBytesMax); text && !text->empty())
    reader.add_system(std::move(*text), "instructions");
  const json::value* input = fields.any("input");
  if (!input || (!input->is_string() && !input->is_array())) {
    fields.fail("input",
                fmt::format("expected a string or an array of items, found {}", input ? describe(*input) : "nothing"));
  } else if (input->is_string()) {
    reader.add_user(input->get_string(), "input");
  } else if (input->get_array().size() > kInputItemsMax) {
    fields.fail("input", fmt::format("expected at most {} items, found {}", kInputItemsMax, input->get_array().size()));
  } else if (input->get_array().empty()) {
    reader.add_user("", "input");  // a probe
  } else {
    for (size_t i = 0; i < input->get_array().size() && !fields.failed(); ++i) reader.read(input->get_array()[i], i);
  }
  return reader.take();
}

}  // namespace llmrt::server
