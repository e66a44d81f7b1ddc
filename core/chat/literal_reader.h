// A literal of Python, JSON or Gemma's own notation, rewritten as compact JSON while it is read. Strings grow as their
// bytes come; other scalars are written when they are complete. A quote inside a string that nothing of the syntax
// follows is text. Nesting is bounded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/json_text.h"

namespace llmrt {

class LiteralReader {
 public:
  static constexpr size_t kDepthMax = 128;
  enum class Step : uint8_t { kMore, kDone, kDoneBefore, kFailed };

  // bare_keys: keys of objects are words, strings stand between delimiters (push_delimiter).
  explicit LiteralReader(bool bare_keys = false) : bare_keys_(bare_keys) {}
  // As if `{` had been read.
  void begin_object(std::string* out) { open('{', out); }

  Step push(char c, std::string* out);
  Step push_delimiter(std::string* out);
  // Nothing follows. kDone: the value is complete.
  Step end(std::string* out);
  // Plain text of any bytes until the string ends: marks do not count.
  bool in_string() const { return state_ == State::kString || state_ == State::kQuoteEnd; }
  bool in_delimited() const { return state_ == State::kDelimited; }
  bool has_begun() const { return has_begun_; }
  // Some text was no literal and became a string.
  bool is_odd() const { return is_odd_; }

 private:
  enum class State : uint8_t { kValue, kKey, kString, kQuoteEnd, kDelimited, kWord, kAfter, kDone };
  Step open(char bracket, std::string* out);
  Step close(char bracket, std::string* out);
  Step push_structure(char c, std::string* out);
  Step push_string(char c, std::string* out);
  Step push_quote_end(char c, std::string* out);
  Step push_after(char c, std::string* out);
  Step value_ended();
  void write_word(std::string* out);
  void write_comma(std::string* out);
  bool is_key() const { return state_ == State::kKey; }

  struct Level {
    char bracket;
    bool has_members = false;
    bool wants_key = false;  // of an object: the next thing is a key
  };
  bool bare_keys_;
  State state_ = State::kValue;
  std::vector<Level> levels_;
  bool word_is_key_ = false;
  bool has_begun_ = false;
  bool is_odd_ = false;
  char quote_ = 0;
  std::string pending_;  // a closing quote with blanks behind it, or a word
  Unescaper unescaper_{true};
};

// A scalar of Python or JSON as JSON; empty: it is none.
std::string json_scalar(std::string_view word);

}  // namespace llmrt
