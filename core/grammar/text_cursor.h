// Reading a grammar's text: a place in it, and errors that name line and column. One thread.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/status.h"
#include "core/base/utf8.h"
#include "core/grammar/grammar_names.h"

namespace llmrt {

class TextCursor {
 public:
  TextCursor(const char* dialect, std::string_view text) : dialect_(dialect), text_(text) {}

  bool at_end() const { return at_ >= text_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  char take() { return at_end() ? '\0' : text_[at_++]; }
  void skip(size_t n) { at_ = std::min(at_ + n, text_.size()); }
  bool starts_with(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take_if(std::string_view what) {
    if (!starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  size_t offset() const { return at_; }
  std::string_view from(size_t begin) const { return text_.substr(begin, at_ - begin); }
  std::string_view rest() const { return text_.substr(at_); }

  // The code point here; nothing where the text ends or is not UTF-8.
  std::optional<char32_t> take_code_point() {
    if (at_end()) return std::nullopt;
    const Utf8Step step = decode_utf8(text_, at_);
    if (step.state != Utf8State::kValid) return std::nullopt;
    at_ += step.num_bytes;
    return step.code_point;
  }
  // Exactly so many hexadecimal digits.
  std::optional<char32_t> take_hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return std::nullopt;
      value = value * 16 + static_cast<char32_t>(digit);
      ++at_;
    }
    return value;
  }
  // At most nine digits.
  std::optional<uint32_t> take_number() {
    const size_t begin = at_;
    uint32_t value = 0;
    while (peek() >= '0' && peek() <= '9' && at_ - begin < 9) value = value * 10 + static_cast<uint32_t>(take() - '0');
    if (begin == at_ || (peek() >= '0' && peek() <= '9')) return std::nullopt;
    return value;
  }

  // Behind \x, \u or \U: a code point of 2, 4 or 8 hexadecimal digits.
  Result<char32_t> take_escaped_code_point(char kind) {
    const int digits = kind == 'x' ? 2 : kind == 'u' ? 4 : 8;
    const auto value = take_hex(digits);
    if (value && *value <= 0x10ffff && (*value < 0xd800 || *value > 0xdfff)) return *value;
    return error("expected {} hexadecimal digits of a code point behind \\{}", digits, kind);
  }
  // <[id]>, or the name of a special token between < and >.
  Result<int32_t> take_token(const GrammarNames& names) {
    const size_t begin = at_;
    take();
    if (take_if("[")) {
      const auto id = take_number();
      if (id && *id < names.vocabulary_size && take_if("]>")) return static_cast<int32_t>(*id);
      return error("expected <[id]> with an id below {}", names.vocabulary_size);
    }
    while (!at_end() && peek() != '>' && peek() != '\n') take();
    if (!take_if(">")) return error("expected > at the end of a token's name");
    const int32_t token = names.find_special ? names.find_special(from(begin)) : -1;
    if (token < 0) return error("{} is no special token of this model", from(begin));
    return token;
  }

  template <typename... Args>
  Error error(fmt::format_string<Args...> format, Args&&... args) const {
    const auto line = 1 + std::ranges::count(text_.substr(0, at_), '\n');
    const size_t line_begin = text_.substr(0, at_).rfind('\n');
    const size_t column = at_ - (line_begin == std::string_view::npos ? 0 : line_begin + 1) + 1;
    return make_error(ErrorCode::kInvalidArgument, "{} grammar, line {}, column {}: {}", dialect_, line, column,
                      fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  const char* dialect_;
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace llmrt
