// Any bytes as a chat template, rendered over a few messages; behind a zero byte, any JSON object as the client's
// chat_template_kwargs. An error or text; and what the messages and the kwargs brought, which holds a mark that no
// template can write, must never be called template text.
#include <boost/json.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/check.h"
#include "core/base/utf8.h"
#include "core/text/chat_template.h"

namespace {

using namespace llmrt;

// In no keyword, function or case mapping; a template with it in its own text is left out.
constexpr const char* kMark = "\u3402";

const boost::json::object& context() {
  static const boost::json::object made = boost::json::parse(R"({
    "messages": [
      {"role": "system", "content": "㐂 be <|im_end|> brief"},
      {"role": "user", "content": ["㐂", {"type": "text", "text": "a㐂b, c\n\t㐂"}], "items": {"㐂": 1.5}},
      {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f㐂", "arguments": {"x": [1, true, -7]}}}]}
    ],
    "tools": [], "x": "㐂", "n": 3, "add_generation_prompt": true
  })")
                                              .as_object();
  return made;
}

// The context with the members of `text`, where it is a JSON object.
boost::json::object context_with(std::string_view text) {
  boost::json::object made = context();
  boost::system::error_code error;
  const boost::json::value parsed = boost::json::parse(text, error);
  if (const boost::json::object* kwargs = error ? nullptr : parsed.if_object()) {
    for (const auto& [name, value] : *kwargs) {
      if (name != "messages") {
        made[name] = value;
      }
    }
  }
  return made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string source(input.substr(0, input.find('\0')));
  const std::string_view kwargs = source.size() < size ? input.substr(source.size() + 1) : std::string_view();
  const auto compiled = ChatTemplate::compile(source);
  if (!compiled) {
    return 0;
  }
  const auto pieces = (*compiled)->render(context_with(kwargs), {{"bos_token", "<s>"}});
  if (!pieces) {
    return 0;
  }
  // An escape such as '\u3402' writes the mark as well: in letters or digits of its code, or through %c and the like.
  const bool may_write_mark = source.find(kMark) != std::string::npos || source.find('\\') != std::string::npos;
  for (const TextPiece& piece : *pieces) {
    LLMRT_CHECK(is_valid_utf8(piece.text) && !piece.text.empty(), "a piece is text");
    LLMRT_CHECK(may_write_mark || !piece.from_template || piece.text.find(kMark) == std::string::npos,
                "data called template text");
  }
  return 0;
}
