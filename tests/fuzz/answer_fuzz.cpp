// Any bytes as an answer in a chat format, by the first byte; the second says where it is cut. No crash; the same
// pieces however it is cut; text is valid UTF-8; and what was no markup is not lost where nothing looks like markup.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/check.h"
#include "core/base/utf8.h"
#include "core/chat/answer_parser.h"

namespace {

using namespace llmrt;

Answer read(const ResolvedFormat& format, std::string_view text, size_t step) {
  AnswerOptions options;
  options.tools = {tool_types("w", {{"type", "object"}}), tool_types("f", nullptr)};
  AnswerParser parser(format, options);
  Answer answer;
  const auto add = [&](const std::vector<AnswerEvent>& events) {
    for (const AnswerEvent& event : events) LLMRT_CHECK(is_valid_utf8(event.text), "a piece that is no UTF-8");
    answer.add(events);
  };
  for (size_t i = 0; i < text.size(); i += step) add(parser.feed(-1, text.substr(i, step), false));
  add(parser.finish(AnswerParser::End::kStop));
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > 8192) return 0;
  const auto formats = chat_formats();
  const ResolvedFormat format =
      resolve_format(formats[data[0] % formats.size()], [](std::string_view) { return -1; });  // marks as text
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Answer whole = read(format, text, text.size() + 1), cut = read(format, text, 1 + data[1] % 7);
  LLMRT_CHECK(whole.content == cut.content && whole.thought == cut.thought, "a cut changes the text");
  LLMRT_CHECK(whole.calls.size() == cut.calls.size(), "a cut changes the calls");
  for (size_t i = 0; i < whole.calls.size(); ++i) {
    LLMRT_CHECK(whole.calls[i].name == cut.calls[i].name && whole.calls[i].args == cut.calls[i].args,
                "a cut changes a call");
  }
  return 0;
}
