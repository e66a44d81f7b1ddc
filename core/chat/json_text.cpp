#include "core/chat/json_text.h"

#include "core/base/utf8.h"
#include "core/grammar/json_spelling.h"

namespace llmrt {

void append_json_escaped(std::string* out, std::string_view text) {
  for (const char c : text) *out += json_spellings()[static_cast<uint8_t>(c)];
}

void Unescaper::push(char c, std::string* out) {
  if (state_ == State::kHex) return push_hex(c, out);
  if (state_ == State::kBackslash) return push_escape(c, out);
  if (c == '\\') {
    state_ = State::kBackslash;
    return;
  }
  flush_high(out);
  *out += c;
}

void Unescaper::push_escape(char c, std::string* out) {
  state_ = State::kPlain;
  const bool is_hex = c == 'u' || (python_ && (c == 'x' || c == 'U'));
  if (is_hex) {
    state_ = State::kHex;
    hex_left_ = c == 'u' ? 4 : c == 'x' ? 2 : 8;
    hex_ = 0;
    spelling_ = std::string("\\") + c;
    return;
  }
  flush_high(out);
  constexpr std::string_view kNames = "ntrbf\"\\/", kBytes = "\n\t\r\b\f\"\\/";
  if (const size_t i = kNames.find(c); i != kNames.npos && !(python_ && c == '/')) {
    *out += kBytes[i];
  } else if (python_ && c == '\'') {
    *out += c;
  } else if (python_ && c == '0') {
    *out += '\0';
  } else if (!(python_ && c == '\n')) {
    *out += '\\';
    *out += c;
  }
}

void Unescaper::push_hex(char c, std::string* out) {
  const int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
  if (digit < 0) {
    state_ = State::kPlain;
    flush_high(out);
    *out += spelling_;
    return push(c, out);
  }
  spelling_ += c;
  hex_ = hex_ * 16 + static_cast<char32_t>(digit);
  if (--hex_left_ > 0) return;
  state_ = State::kPlain;
  append(hex_, out);
}

void Unescaper::append(char32_t code_point, std::string* out) {
  const bool is_low = code_point >= 0xDC00 && code_point <= 0xDFFF;
  if (is_low && high_ != 0) {
    append_utf8(*out, 0x10000 + ((high_ - 0xD800) << 10) + (code_point - 0xDC00));
    high_ = 0;
    return;
  }
  flush_high(out);
  if (code_point >= 0xD800 && code_point <= 0xDBFF) {
    high_ = code_point;
  } else {
    append_utf8(*out, is_low || code_point > 0x10FFFF ? kReplacementCharacter : code_point);
  }
}

void Unescaper::flush_high(std::string* out) {
  if (high_ != 0) append_utf8(*out, kReplacementCharacter);
  high_ = 0;
}

void Unescaper::end(std::string* out) {
  flush_high(out);
  if (state_ == State::kBackslash) *out += '\\';
  if (state_ == State::kHex) *out += spelling_;
  state_ = State::kPlain;
}

JsonArgs::Step JsonArgs::push(char c, std::string* out) {
  switch (kind_) {
    case Kind::kNone:
      if (is_json_space(static_cast<uint8_t>(c))) return Step::kMore;
      if (c == ',' || c == '}' || c == ']') return Step::kDoneBefore;
      kind_ = c == '{' || c == '[' ? Kind::kNested : c == '"' ? Kind::kQuoted : Kind::kScalar;
      in_string_ = c == '"';
      if (kind_ == Kind::kNested) *out += c, depth_ = 1;
      if (kind_ == Kind::kScalar) scalar_ += c;
      return Step::kMore;
    case Kind::kNested:
      *out += c;
      if (in_string_) {
        if (!escaped_ && c == '"') in_string_ = false;
        escaped_ = !escaped_ && c == '\\';
      } else if (c == '"') {
        in_string_ = true;
      } else if (c == '{' || c == '[') {
        ++depth_;
      } else if ((c == '}' || c == ']') && --depth_ == 0) {
        return Step::kDone;
      }
      return Step::kMore;
    case Kind::kQuoted: {
      const size_t before = out->size();
      const bool is_end = c == '"' && !unescaper_.in_escape();
      is_end ? unescaper_.end(out) : unescaper_.push(c, out);
      has_output_ |= out->size() > before;
      if (!is_end) return Step::kMore;
      in_string_ = false;
      if (!has_output_) *out += "{}";
      return Step::kDone;
    }
    case Kind::kScalar:
      if (c == ',' || c == '}' || c == ']' || is_json_space(static_cast<uint8_t>(c))) {
        end(out);
        return Step::kDoneBefore;
      }
      scalar_ += c;
      return Step::kMore;
  }
  return Step::kMore;
}

void JsonArgs::end(std::string* out) {
  if (kind_ == Kind::kScalar) *out += scalar_ == "null" || scalar_ == "None" ? "{}" : scalar_;
  scalar_.clear();
}

}  // namespace llmrt
