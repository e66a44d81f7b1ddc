#include "core/chat/literal_reader.h"

#include "core/grammar/json_spelling.h"

#include <algorithm>

namespace llmrt {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// sign digits [. digits] [e sign digits], with Python's freedoms: 007, +1, .5, 5., 1_000.
std::string json_number(std::string_view word) {
  std::string out;
  size_t i = 0;
  if (i < word.size() && (word[i] == '-' || word[i] == '+')) {
    if (word[i] == '-') out += '-';
    ++i;
  }
  const auto digits = [&] {
    std::string run;
    while (i < word.size() && (is_digit(word[i]) || (word[i] == '_' && !run.empty()))) {
      if (word[i] != '_') run += word[i];
      ++i;
    }
    return run;
  };
  std::string whole = digits();
  const bool has_whole = !whole.empty();
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.empty() ? 0 : whole.size() - 1));
  out += has_whole ? whole : "0";
  bool has_fraction = false;
  if (i < word.size() && word[i] == '.') {
    ++i;
    const std::string fraction = digits();
    has_fraction = !fraction.empty();
    out += '.' + (has_fraction ? fraction : "0");
  }
  if (!has_whole && !has_fraction) return {};
  if (i < word.size() && (word[i] == 'e' || word[i] == 'E')) {
    out += word[i++];
    if (i < word.size() && (word[i] == '-' || word[i] == '+')) out += word[i++];
    const std::string exponent = digits();
    if (exponent.empty()) return {};
    out += exponent;
  }
  return i == word.size() ? out : std::string();
}

}  // namespace

std::string json_scalar(std::string_view word) {
  if (word == "true" || word == "True") return "true";
  if (word == "false" || word == "False") return "false";
  if (word == "null" || word == "None" || word == "none") return "null";
  return json_number(word);
}

void LiteralReader::write_comma(std::string* out) {
  if (levels_.empty()) return;
  Level& level = levels_.back();
  const bool is_value_of_key = level.bracket == '{' && !level.wants_key;
  if (is_value_of_key) return;
  if (level.has_members) *out += ',';
  level.has_members = true;
}

LiteralReader::Step LiteralReader::open(char bracket, std::string* out) {
  has_begun_ = true;
  if (levels_.size() >= kDepthMax) return Step::kFailed;
  write_comma(out);
  *out += bracket == '{' ? '{' : '[';
  levels_.push_back({.bracket = bracket, .wants_key = bracket == '{'});
  state_ = bracket == '{' ? State::kKey : State::kValue;
  return Step::kMore;
}

LiteralReader::Step LiteralReader::close(char bracket, std::string* out) {
  if (levels_.empty()) return Step::kDoneBefore;
  const char opened = levels_.back().bracket;
  const bool fits =
      (opened == '{' && bracket == '}') || (opened == '[' && bracket == ']') || (opened == '(' && bracket == ')');
  if (!fits) return Step::kFailed;
  *out += opened == '{' ? '}' : ']';
  levels_.pop_back();
  return value_ended();
}

LiteralReader::Step LiteralReader::value_ended() {
  if (levels_.empty()) {
    state_ = State::kDone;
    return Step::kDone;
  }
  state_ = State::kAfter;
  return Step::kMore;
}

LiteralReader::Step LiteralReader::push(char c, std::string* out) {
  switch (state_) {
    case State::kValue:
    case State::kKey:
      return push_structure(c, out);
    case State::kString:
      return push_string(c, out);
    case State::kQuoteEnd:
      return push_quote_end(c, out);
    case State::kDelimited:
      append_json_escaped(out, std::string_view(&c, 1));
      return Step::kMore;
    case State::kWord:
      if (c == ',' || c == ']' || c == '}' || c == ')' || (c == ':' && word_is_key_)) {
        write_word(out);
        if (levels_.empty()) {
          state_ = State::kDone;
          return Step::kDoneBefore;
        }
        state_ = State::kAfter;
        return push_after(c, out);
      }
      pending_ += c;
      return Step::kMore;
    case State::kAfter:
      return push_after(c, out);
    case State::kDone:
      return Step::kDoneBefore;
  }
  return Step::kFailed;
}

LiteralReader::Step LiteralReader::push_structure(char c, std::string* out) {
  if (is_json_space(static_cast<uint8_t>(c))) return Step::kMore;
  if (c == ']' || c == '}' || c == ')') {
    if (levels_.empty()) return Step::kFailed;
    // A trailing comma is fine, a key without a value is not.
    if (levels_.back().bracket == '{' && state_ == State::kValue) return Step::kFailed;
    return close(c, out);
  }
  if (c == ',' || c == ':') return Step::kFailed;
  has_begun_ = true;
  if (c == '"' || c == '\'') {
    write_comma(out);
    *out += '"';
    quote_ = c;
    word_is_key_ = is_key();
    state_ = State::kString;
    return Step::kMore;
  }
  if (!is_key() && (c == '{' || c == '[' || c == '(')) return open(c, out);
  if (is_key() && (c == '{' || c == '[' || c == '(')) return Step::kFailed;
  word_is_key_ = is_key();
  pending_ = c;
  state_ = State::kWord;
  return Step::kMore;
}

LiteralReader::Step LiteralReader::push_string(char c, std::string* out) {
  if (c == quote_ && !unescaper_.in_escape()) {
    pending_ = c;
    state_ = State::kQuoteEnd;
    return Step::kMore;
  }
  std::string bytes;
  unescaper_.push(c, &bytes);
  append_json_escaped(out, bytes);
  return Step::kMore;
}

LiteralReader::Step LiteralReader::push_quote_end(char c, std::string* out) {
  if (is_json_space(static_cast<uint8_t>(c))) {
    pending_ += c;
    return Step::kMore;
  }
  std::string bytes;
  if (c == ',' || c == ']' || c == '}' || c == ')' || (c == ':' && word_is_key_)) {
    unescaper_.end(&bytes);
    append_json_escaped(out, bytes);
    *out += '"';
    pending_.clear();
    if (levels_.empty()) {
      state_ = State::kDone;
      return Step::kDoneBefore;
    }
    state_ = State::kAfter;
    return push_after(c, out);
  }
  is_odd_ = true;
  for (const char held : pending_) unescaper_.push(held, &bytes);
  append_json_escaped(out, bytes);
  pending_.clear();
  state_ = State::kString;
  return push_string(c, out);
}

LiteralReader::Step LiteralReader::push_after(char c, std::string* out) {
  if (is_json_space(static_cast<uint8_t>(c))) return Step::kMore;
  if (c == ']' || c == '}' || c == ')') {
    if (levels_.back().bracket == '{' && levels_.back().wants_key) return Step::kFailed;
    if (levels_.back().bracket == '{') levels_.back().wants_key = true;
    return close(c, out);
  }
  Level& level = levels_.back();
  if (c == ':' && level.bracket == '{' && level.wants_key) {
    *out += ':';
    level.wants_key = false;
    state_ = State::kValue;
    return Step::kMore;
  }
  if (c != ',' || (level.bracket == '{' && level.wants_key)) return Step::kFailed;
  if (level.bracket == '{') level.wants_key = true;
  state_ = level.bracket == '{' ? State::kKey : State::kValue;
  return Step::kMore;
}

LiteralReader::Step LiteralReader::push_delimiter(std::string* out) {
  if (state_ == State::kDelimited) {
    *out += '"';
    return value_ended();
  }
  if (state_ != State::kValue && state_ != State::kKey) return Step::kFailed;
  has_begun_ = true;
  write_comma(out);
  *out += '"';
  state_ = State::kDelimited;
  return Step::kMore;
}

void LiteralReader::write_word(std::string* out) {
  while (!pending_.empty() && is_json_space(static_cast<uint8_t>(pending_.back()))) pending_.pop_back();
  const std::string scalar = word_is_key_ ? std::string() : json_scalar(pending_);
  if (scalar.empty() && !(word_is_key_ && bare_keys_)) is_odd_ = true;
  write_comma(out);
  *out += scalar.empty() ? json_string_text(pending_) : scalar;
  pending_.clear();
}

LiteralReader::Step LiteralReader::end(std::string* out) {
  if (!levels_.empty()) return Step::kFailed;
  if (state_ == State::kDone) return Step::kDone;
  if (state_ == State::kWord) {
    write_word(out);
  } else if (state_ == State::kQuoteEnd) {
    std::string bytes;
    unescaper_.end(&bytes);
    append_json_escaped(out, bytes);
    *out += '"';
  } else {
    return Step::kFailed;
  }
  state_ = State::kDone;
  return Step::kDone;
}

}  // namespace llmrt
