#include "core/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "core/base/utf8.h"
#include "core/jinja/code_points.h"

namespace llmrt::jinja {
namespace {

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80);
}

// "\n" for every kind of newline, and not the last one.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      i += i + 1 < source.size() && source[i + 1] == '\n';
    } else {
      out.push_back(source[i]);
    }
  }
  if (out.ends_with('\n')) {
    out.pop_back();
  }
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (pos_ < source_.size()) {
      read_data_and_tag();
    }
    push(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  // The position of pos_; called with growing offsets only.
  Position here() { return position_of(pos_); }
  Position position_of(size_t offset) {
    for (; counted_ < offset; ++counted_) {
      if (source_[counted_] == '\n') {
        ++line_;
        line_begin_ = counted_ + 1;
      }
    }
    return {line_, static_cast<int>(offset - line_begin_) + 1};
  }

  Token& push(TokenKind kind, std::string text) {
    tokens_.push_back({.kind = kind, .text = std::move(text), .at = here()});
    return tokens_.back();
  }

  char at(size_t offset) const { return offset < source_.size() ? source_[offset] : '\0'; }
  bool looking_at(std::string_view text) const { return source_.substr(pos_).starts_with(text); }

  void skip_space() {
    while (pos_ < source_.size()) {
      const Utf8Step step = decode_utf8(source_, pos_);
      if (!is_space(step.code_point)) {
        return;
      }
      pos_ += step.num_bytes;
    }
  }

  // The text in front of a tag, less what the tag's sign (or lstrip_blocks) takes away.
  std::string_view strip_before_tag(size_t begin, size_t end, char sign, bool is_variable) const {
    std::string_view text = source_.substr(begin, end - begin);
    if (sign == '-') {
      return rstrip(text);
    }
    if (sign == '+' || is_variable) {
      return text;
    }
    const size_t newline = text.rfind('\n');
    const size_t line = newline == npos ? 0 : newline + 1;
    const bool at_line_start = line > 0 || begin == 0 || source_[begin - 1] == '\n';
    return at_line_start && is_blank(text.substr(line)) ? text.substr(0, line) : text;
  }

  static std::string_view rstrip(std::string_view text) {
    while (!text.empty()) {
      size_t last = text.size() - 1;
      while (last > 0 && (static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) {
        --last;
      }
      if (!is_space(decode_utf8(text, last).code_point)) {
        break;
      }
      text = text.substr(0, last);
    }
    return text;
  }

  static bool is_blank(std::string_view text) { return rstrip(text).empty(); }

  void push_data(std::string_view text) {
    if (!text.empty()) {
      push(TokenKind::kData, std::string(text));
    }
  }

  size_t find_tag(size_t from) const {
    for (size_t brace = source_.find('{', from); brace != npos; brace = source_.find('{', brace + 1)) {
      const char next = at(brace + 1);
      if (next == '%' || next == '{' || next == '#') {
        return brace;
      }
    }
    return npos;
  }

  void read_data_and_tag() {
    const size_t tag = find_tag(pos_);
    if (tag == npos) {
      push_data(source_.substr(pos_));
      pos_ = source_.size();
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = at(tag + 2) == '-' || at(tag + 2) == '+' ? source_[tag + 2] : '\0';
    const std::string_view text = strip_before_tag(pos_, tag, sign, kind == '{');
    push_data(text);
    pos_ = tag + 2 + (sign != '\0');
    if (kind == '#') {
      skip_comment();
    } else if (kind == '%' && read_raw()) {
      return;
    } else {
      push(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, "");
      read_expression(kind == '%');
    }
  }

  // After a block's or comment's end: the sign in front of it decides what follows it.
  void trim_after(char sign) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && at(pos_) == '\n') {
      ++pos_;
    }
  }

  void skip_comment() {
    const size_t end = source_.find("#}", pos_);
    if (end == npos) {
      fail_syntax(here(), "missing end of comment tag");
    }
    const char sign = end > pos_ ? source_[end - 1] : '\0';
    pos_ = end + 2;
    trim_after(sign);
  }

  // Reads the name of a tag that holds nothing else, up to and with its end; the sign of the end, or nullopt.
  std::optional<char> read_bare_tag(std::string_view name) {
    skip_space();
    if (!looking_at(name)) {
      return std::nullopt;
    }
    pos_ += name.size();
    skip_space();
    const char sign = at(pos_) == '-' || at(pos_) == '+' ? at(pos_) : '\0';
    pos_ += sign != '\0';
    if (!looking_at("%}")) {
      return std::nullopt;
    }
    pos_ += 2;
    return sign;
  }

  // {% raw %}...{% endraw %}, where pos_ is behind the opening {%. False, and nothing read, if it is another block.
  bool read_raw() {
    const size_t begin = pos_;
    const std::optional<char> raw_sign = read_bare_tag("raw");
    if (!raw_sign || *raw_sign == '+') {
      pos_ = begin;
      return false;
    }
    if (*raw_sign == '-') {
      skip_space();
    }
    const size_t text_begin = pos_;
    for (size_t tag = source_.find("{%", pos_); tag != npos; tag = source_.find("{%", tag + 1)) {
      const char sign = at(tag + 2) == '-' || at(tag + 2) == '+' ? source_[tag + 2] : '\0';
      pos_ = tag + 2 + (sign != '\0');
      const std::optional<char> end_sign = read_bare_tag("endraw");
      if (!end_sign) {
        continue;
      }
      const size_t after = pos_;
      pos_ = text_begin;
      push_data(strip_before_tag(text_begin, tag, sign, false));
      pos_ = after;
      trim_after(*end_sign);
      return true;
    }
    pos_ = text_begin;
    fail_syntax(here(), "missing end of raw block");
  }

  bool read_end(bool is_block) {
    const std::string_view end = is_block ? "%}" : "}}";
    const char sign = (at(pos_) == '-' || (is_block && at(pos_) == '+')) ? at(pos_) : '\0';
    const size_t length = sign != '\0';
    if (!source_.substr(pos_ + length).starts_with(end)) {
      return false;
    }
    push(is_block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "");
    pos_ += length + 2;
    if (is_block) {
      trim_after(sign);
    } else if (sign == '-') {
      skip_space();
    }
    return true;
  }

  void read_expression(bool is_block) {
    std::string open;  // the closing brackets still awaited
    while (true) {
      if (open.empty() && read_end(is_block)) {
        return;
      }
      skip_space();
      if (pos_ == source_.size()) {
        fail_syntax(here(), "unexpected end of template inside a tag");
      }
      if (open.empty() && read_end(is_block)) {
        return;
      }
      const char c = source_[pos_];
      if (is_digit(c)) {
        read_number();
      } else if (is_name_start(c)) {
        size_t end = pos_;
        while (is_name_start(at(end)) || is_digit(at(end))) {
          ++end;
        }
        push(TokenKind::kName, std::string(source_.substr(pos_, end - pos_)));
        pos_ = end;
      } else if (c == '"' || c == '\'') {
        read_string(c);
      } else {
        read_operator(open);
      }
    }
  }

  void read_operator(std::string& open) {
    static constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto* found = std::ranges::find_if(kOperators, [&](std::string_view op) { return looking_at(op); });
    if (found == std::end(kOperators)) {
      fail_syntax(here(), "unexpected character '{}'", source_.substr(pos_, decode_utf8(source_, pos_).num_bytes));
    }
    const char c = (*found)[0];
    if (c == '(' || c == '[' || c == '{') {
      open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) {
        fail_syntax(here(), "unexpected '{}'", c);
      }
      open.pop_back();
    }
    push(TokenKind::kOperator, std::string(*found));
    pos_ += found->size();
  }

  // Digits with single underscores between them, appended to `digits` without these.
  size_t scan_digits(size_t from, int base, std::string& digits) const {
    const auto is_digit_of = [&](char c) {
      const char low = static_cast<char>(c | 0x20);
      return base == 16 ? is_digit(c) || (low >= 'a' && low <= 'f') : c >= '0' && c < '0' + base;
    };
    size_t pos = from;
    while (is_digit_of(at(pos)) || (at(pos) == '_' && pos > from && is_digit_of(at(pos + 1)))) {
      if (source_[pos] != '_') {
        digits.push_back(source_[pos]);
      }
      ++pos;
    }
    return pos;
  }

  void read_number() {
    const bool after_dot = pos_ > 0 && source_[pos_ - 1] == '.';  // a.1.5 is two subscripts
    std::string digits;
    size_t end = scan_digits(pos_, 10, digits);
    if (!after_dot && read_float(digits, end)) {
      return;
    }
    int base = 10;
    const char letter = static_cast<char>(at(pos_ + 1) | 0x20);
    if (source_[pos_] == '0' && (letter == 'b' || letter == 'o' || letter == 'x')) {
      base = letter == 'b' ? 2 : letter == 'o' ? 8 : 16;
      digits.clear();
      end = scan_digits(pos_ + 2, base, digits);
    }
    if (digits.empty()) {
      fail_syntax(here(), "expected digits of an integer of base {}", base);
    }
    push(TokenKind::kInteger, digits).base = base;
    pos_ = end;
  }

  // `digits`: the integer part, which ends at `end`. False where neither a fraction nor an exponent follows.
  bool read_float(const std::string& digits, size_t end) {
    std::string number = digits;
    bool is_float = false;
    if (at(end) == '.' && is_digit(at(end + 1))) {
      number.push_back('.');
      end = scan_digits(end + 1, 10, number);
      is_float = true;
    }
    if ((at(end) | 0x20) == 'e') {
      const size_t sign = at(end + 1) == '+' || at(end + 1) == '-';
      if (is_digit(at(end + 1 + sign))) {
        number.append(source_.substr(end, 1 + sign));
        end = scan_digits(end + 1 + sign, 10, number);
        is_float = true;
      }
    }
    if (is_float) {
      push(TokenKind::kFloat, "").number = std::strtod(number.c_str(), nullptr);
      pos_ = end;
    }
    return is_float;
  }

  void read_string(char quote) {
    size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != quote) {
      end += source_[end] == '\\' ? 2 : 1;
    }
    if (end >= source_.size()) {
      fail_syntax(here(), "unterminated string");
    }
    push(TokenKind::kString, unescape(source_.substr(pos_ + 1, end - pos_ - 1)));
    pos_ = end + 1;
  }

  // The escapes of Python's string literals; an unknown one stays as it is.
  std::string unescape(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        out.push_back(text[i]);
        continue;
      }
      const char c = text[++i];
      static constexpr std::string_view kLetters = "abfnrtv\\'\"";
      static constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t letter = kLetters.find(c); letter != npos) {
        out.push_back(kValues[letter]);
      } else if (c == '\n') {
        continue;
      } else if (c >= '0' && c <= '7') {
        size_t length = 1;
        while (length < 3 && i + length < text.size() && text[i + length] >= '0' && text[i + length] <= '7') {
          ++length;
        }
        append_escaped(out, text.substr(i, length), length, 8);
        i += length - 1;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t length = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_escaped(out, text.substr(i + 1, length), length, 16);
        i += length;
      } else if (c == 'N') {
        fail_unsupported("line {}: string escape \\N{{...}}", here().line);
      } else {
        out.push_back('\\');
        out.push_back(c);
      }
    }
    return out;
  }

  void append_escaped(std::string& out, std::string_view digits, size_t length, int base) {
    uint32_t value = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    const bool complete = digits.size() == length && stop == digits.data() + digits.size() && error == std::errc();
    if (!complete || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      fail_syntax(here(), "string escape: expected {} digits of a character's code, found \"{}\"", length, digits);
    }
    append_utf8(out, value);
  }

  std::string_view source_;
  size_t pos_ = 0;
  std::vector<Token> tokens_;
  size_t counted_ = 0;  // newlines are counted up to here
  size_t line_begin_ = 0;
  int line_ = 1;
};

}  // namespace

bool is_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::vector<Token> tokenize(std::string_view source) {
  const std::string normalized = normalize_newlines(source);
  return Lexer(normalized).run();
}

}  // namespace llmrt::jinja
