#include <algorithm>

#include "core/chat/chat_format.h"
#include "core/chat/format_table.h"
#include "core/chat/resolved_format.h"

namespace llmrt {
namespace {

struct AbsentFormat {
  std::string_view name;
  std::string_view mark;          // in its templates
  std::string_view without = {};  // not in them
};
constexpr AbsentFormat kAbsent[] = {
    {"deepseek-v4", "｜DSML｜", "function_calls"}, {"minimax-m3", "]<]minimax[>["}, {"kimi-k3", "<|end_of_msg|>"}};

bool has_all(std::string_view source, const std::vector<std::string>& strings) {
  return std::ranges::all_of(strings, [&](const auto& s) { return source.find(s) != std::string_view::npos; });
}

}  // namespace

std::span<const ChatFormat> chat_formats() {
  static const std::vector<ChatFormat> table = make_format_table();
  return table;
}

Result<const ChatFormat*> find_chat_format(std::string_view name) {
  std::string known;
  for (const ChatFormat& format : chat_formats()) {
    if (format.name == name) return &format;
    known += (known.empty() ? "" : ", ") + format.name;
  }
  for (const AbsentFormat& absent : kAbsent) {
    if (absent.name == name) {
      return make_error(ErrorCode::kUnsupported, "chat format {}: not there yet, expected one of {}", name, known);
    }
  }
  return make_error(ErrorCode::kInvalidArgument, "unknown chat format: expected one of {}, found {}", known, name);
}

const ChatFormat& detect_chat_format(std::string_view template_source, const Tokenizer& tokenizer) {
  const auto formats = chat_formats();
  if (template_source.empty()) {
    const FindToken find = marker_tokens(tokenizer);
    for (const ChatFormat& format : formats) {
      const bool has_tokens = std::ranges::all_of(format.tokens, [&](const auto& text) { return find(text) >= 0; });
      if (format.has_calls() && !format.tokens.empty() && has_tokens) return format;
    }
  } else if (absent_chat_format(template_source).empty()) {
    for (const ChatFormat& format : formats) {
      if (std::ranges::any_of(format.detect, [&](const auto& list) { return has_all(template_source, list); })) {
        return format;
      }
    }
  }
  return formats.back();  // plain
}

std::string_view absent_chat_format(std::string_view template_source) {
  for (const AbsentFormat& absent : kAbsent) {
    const bool is_without = absent.without.empty() || template_source.find(absent.without) == std::string_view::npos;
    if (is_without && template_source.find(absent.mark) != std::string_view::npos) return absent.name;
  }
  return {};
}

}  // namespace llmrt
