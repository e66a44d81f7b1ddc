// JSON text byte by byte: escapes written and read, and the end of a value found. All state is in the objects, so it
// does not matter where the text is cut.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace llmrt {

inline bool is_json_space(char32_t c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
void append_json_escaped(std::string* out, std::string_view text);

// Reads escapes inside a string; the caller finds the closing quote (not while in_escape()). What is no escape is kept
// as it is; half a surrogate pair becomes U+FFFD.
class Unescaper {
 public:
  explicit Unescaper(bool python = false) : python_(python) {}
  bool in_escape() const { return state_ != State::kPlain; }
  void push(char c, std::string* out);
  void end(std::string* out);  // at the closing quote

 private:
  enum class State : uint8_t { kPlain, kBackslash, kHex };
  void push_escape(char c, std::string* out);
  void push_hex(char c, std::string* out);
  void append(char32_t code_point, std::string* out);
  void flush_high(std::string* out);

  bool python_;
  State state_ = State::kPlain;
  uint32_t hex_left_ = 0;
  char32_t hex_ = 0;
  char32_t high_ = 0;     // half a pair that waits for the other
  std::string spelling_;  // of the escape so far
};

// The arguments of a call as a JSON value: an object or list passes through byte for byte up to its end; a string is
// unwrapped once; null is {}.
class JsonArgs {
 public:
  enum class Step : uint8_t { kMore, kDone, kDoneBefore };
  Step push(char c, std::string* out);
  bool has_begun() const { return kind_ != Kind::kNone; }
  bool is_object() const { return kind_ == Kind::kNested; }
  bool was_quoted() const { return kind_ == Kind::kQuoted; }
  bool in_string() const { return in_string_; }
  // The text ends here: what a value without an end of its own stands for.
  void end(std::string* out);

 private:
  enum class Kind : uint8_t { kNone, kNested, kQuoted, kScalar };
  Kind kind_ = Kind::kNone;
  uint32_t depth_ = 0;
  bool in_string_ = false, escaped_ = false, has_output_ = false;
  Unescaper unescaper_;
  std::string scalar_;
};

}  // namespace llmrt
