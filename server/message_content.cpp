#include "server/message_content.h"

#include <algorithm>
#include <array>

#include "server/known_fields.h"

namespace llmrt::server {
namespace {

namespace json = boost::json;

constexpr size_t kTypeBytesMax = 64;

bool is_among(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void append_line(std::string& text, std::string_view line, bool is_first) {
  if (!is_first) text += '\n';
  text += line;
}

class PartReader {
 public:
  PartReader(Role role, bool strict, std::vector<std::string>& ignored)
      : role_(role), strict_(strict), ignored_(ignored) {}

  void read(const json::value& part, Fields& fields) {
    const auto type = fields.string("type", kTypeBytesMax).value_or("text");
    if (is_among(type, {"text", "input_text", "output_text"})) return add_text(fields, "text");
    if (role_ == Role::kAssistant && type == "refusal") return add_text(fields, "refusal");
    if (role_ == Role::kAssistant && is_among(type, {"thinking", "reasoning"})) return add_thought(part, fields, type);
    if (role_ == Role::kTool) return add_ignored(ignored_, "tool_content." + type);
    if (is_among(type, {"image_url", "image", "input_image", "image_pil", "image_embeds", "input_audio", "audio_url",
                        "audio", "video_url", "video", "input_video", "file", "input_file", "document"}))
      return fields.fail("type", fmt::format("not supported: {}: this model reads text only", type), "unsupported");
    fields.fail("type", fmt::format("not supported: expected text, found '{}'", shown_name(type)), "unsupported");
  }

  void add(std::string_view line) {
    append_line(content_.text, line, is_first_);
    is_first_ = false;
  }
  MessageContent take() { return std::move(content_); }

 private:
  void add_text(Fields& fields, std::string_view name) {
    const auto text = fields.string(name, kMessageTextBytesMax);
    if (!text) fields.fail(name, "expected a string, found nothing");
    if (strict_) fields.refuse_unread();
    if (text) add(*text);
  }
  // {"type": "thinking", "thinking": "..."}; some write the text under other names, or hide it in a signature.
  void add_thought(const json::value& part, Fields& fields, const std::string& type) {
    for (const std::string_view name : {std::string_view(type), std::string_view("text")}) {
      const json::value* value = part.get_object().if_contains(name);
      if (!value || !value->is_string()) continue;
      if (const auto thought = fields.string(name, kMessageTextBytesMax)) {
        append_line(content_.thoughts, *thought, content_.thoughts.empty());
        return;
      }
    }
  }

  Role role_;
  bool strict_;
  std::vector<std::string>& ignored_;
  MessageContent content_;
  bool is_first_ = true;
};

}  // namespace

std::optional<MessageContent> read_content(Fields& message, Role role, bool may_be_empty, bool strict,
                                           std::vector<std::string>& ignored) {
  const json::value* content = message.any("content");
  if (!content && may_be_empty) return MessageContent{};
  if (!content) {
    const json::value* null = message.object().if_contains("content");
    message.fail("content", fmt::format("expected a string or an array of parts, found {}", null ? "null" : "nothing"));
    return std::nullopt;
  }
  if (content->is_string()) return MessageContent{std::string(content->get_string()), {}};
  if (!content->is_array()) {
    message.fail("content", fmt::format("expected a string or an array of parts, found {}", describe(*content)));
    return std::nullopt;
  }
  PartReader reader(role, strict, ignored);
  for (size_t i = 0; i < content->get_array().size(); ++i) {
    const json::value& part = content->get_array()[i];
    if (part.is_string()) {  // as some clients have it
      reader.add(part.get_string());
      continue;
    }
    const std::string name = fmt::format("content[{}]", i);
    if (!part.is_object()) {
      message.fail(name, fmt::format("expected an object, found {}", describe(part)));
      return std::nullopt;
    }
    Fields fields(part.get_object(), message.full(name) + ".");
    reader.read(part, fields);
    if (fields.error()) {
      message.fail(*fields.error());
      return std::nullopt;
    }
  }
  return reader.take();
}

}  // namespace llmrt::server
