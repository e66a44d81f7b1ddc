#include "core/text/chat_template.h"

#include <new>
#include <utility>

#include "core/base/utf8.h"
#include "core/jinja/interpreter.h"
#include "core/jinja/parser.h"

namespace llmrt {
namespace {

constexpr size_t kSourceBytesMax = 1 << 20;  // the longest known has 20 KB
constexpr size_t kMessageBytesMax = 1000;

Error to_error(const jinja::TemplateError& error) {
  // raise_exception leaves no place: its text is for the client.
  const bool has_place = error.at && error.at->line > 0;
  const std::string place = has_place ? fmt::format("line {}, column {}: ", error.at->line, error.at->column) : "";
  Error made = make_error(error.code, "chat template: {}{}", place, jinja::excerpt(error.message, kMessageBytesMax));
  made.detail = error.detail;
  return made;
}

}  // namespace

struct ChatTemplate::Impl {
  jinja::Template whole;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::compile(std::string source) {
  if (source.size() > kSourceBytesMax || !is_valid_utf8(source)) {
    return make_error(ErrorCode::kCorruptFile, "chat template: expected at most {} bytes of UTF-8", kSourceBytesMax);
  }
  try {
    auto impl = std::make_unique<Impl>();
    impl->whole = jinja::parse(source);
    return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(impl)));
  } catch (const jinja::TemplateError& error) {
    return to_error(error);
  }
}

Result<std::vector<TextPiece>> ChatTemplate::render(const boost::json::object& context,
                                                    const boost::json::object& template_strings,
                                                    const RenderLimits& limits,
                                                    const std::atomic<bool>* cancelled) const {
  try {
    jinja::Interpreter interpreter(context, template_strings, limits, cancelled);
    std::vector<TextPiece> pieces;
    interpreter.render(impl_->whole).for_each_run([&](std::string_view bytes, bool from_template) {
      pieces.push_back({std::string(bytes), from_template});
    });
    return pieces;
  } catch (const jinja::TemplateError& error) {
    return to_error(error);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kOutOfMemory, "chat template: out of memory while rendering");
  }
}

}  // namespace llmrt
