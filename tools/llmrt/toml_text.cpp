#include "tools/llmrt/toml_text.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "core/base/utf8.h"

namespace llmrt::cli {
namespace {

constexpr size_t kBytesMax = 1 << 20;

bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

std::string utf8_of(uint32_t code) {
  std::string out;
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
  return out;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Result<std::vector<TomlEntry>> read() {
    while (error_.empty()) {
      skip_blank(/*with_lines=*/true);
      if (at_end()) break;
      if (peek() == '[')
        read_table();
      else
        read_entry();
      if (error_.empty()) end_line();
    }
    if (!error_.empty()) return make_error(ErrorCode::kInvalidArgument, "line {}: {}", line_, error_);
    return std::move(entries_);
  }

 private:
  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  char take() {
    const char c = text_[at_++];
    if (c == '\n') ++line_;
    return c;
  }
  bool takes(char c) {
    if (at_end() || peek() != c) return false;
    take();
    return true;
  }
  void fail_with(std::string message) {
    if (error_.empty()) error_ = std::move(message);
  }
  std::string found() const {
    if (at_end()) return "the end of the text";
    if (peek() == '\n') return "the end of the line";
    const unsigned char c = static_cast<unsigned char>(peek());
    return c >= 0x20 && c < 0x7f ? fmt::format("'{}'", peek()) : fmt::format("byte 0x{:02x}", c);
  }

  void skip_blank(bool with_lines) {
    while (!at_end()) {
      if (peek() == '#')
        while (!at_end() && peek() != '\n') take();
      const bool is_blank =
          peek() == ' ' || peek() == '\t' || (peek() == '\r' && text_.substr(at_).starts_with("\r\n"));
      if (at_end() || !(is_blank || (with_lines && peek() == '\n'))) return;
      take();
    }
  }
  void end_line() {
    skip_blank(/*with_lines=*/false);
    if (!at_end() && peek() != '\n') fail_with(fmt::format("expected the end of the line, found {}", found()));
  }

  std::vector<std::string> read_keys() {
    std::vector<std::string> keys;
    do {
      skip_blank(false);
      std::string key;
      if (peek() == '"' || peek() == '\'') {
        key = read_string();
      } else {
        while (!at_end() && is_bare(peek())) key += take();
        if (key.empty()) fail_with(fmt::format("expected a key, found {}", found()));
      }
      keys.push_back(std::move(key));
      skip_blank(false);
    } while (error_.empty() && takes('.'));
    return keys;
  }

  void read_table() {
    take();
    if (peek() == '[') return fail_with("expected a table, found an array of tables, which is not read");
    table_ = read_keys();
    if (!takes(']')) fail_with(fmt::format("expected ], found {}", found()));
  }

  void read_entry() {
    TomlEntry entry;
    entry.line = line_;
    std::vector<std::string> keys = read_keys();
    if (!error_.empty()) return;
    if (!takes('=')) return fail_with(fmt::format("expected = behind the key {}, found {}", keys.back(), found()));
    entry.key = std::move(keys.back());
    keys.pop_back();
    entry.table = table_;
    entry.table.insert(entry.table.end(), keys.begin(), keys.end());
    std::vector<std::string> path = entry.table;
    path.push_back(entry.key);
    if (!seen_.insert(path).second) return fail_with(fmt::format("expected each key once, found {} again", entry.key));
    skip_blank(false);
    if (takes('['))
      read_array(&entry);
    else if (const auto value = read_value())
      entry.values.push_back(*value);
    if (error_.empty()) entries_.push_back(std::move(entry));
  }

  void read_array(TomlEntry* entry) {
    entry->is_array = true;
    while (error_.empty()) {
      skip_blank(/*with_lines=*/true);
      if (takes(']')) return;
      if (peek() == '[') return fail_with("expected a value, found an array in an array, which is not read");
      const auto value = read_value();
      if (!value) return;
      entry->values.push_back(*value);
      skip_blank(/*with_lines=*/true);
      if (takes(']')) return;
      if (!takes(',')) fail_with(fmt::format("expected , or ] behind a value, found {}", found()));
    }
  }

  std::optional<TomlValue> read_value() {
    if (peek() == '"' || peek() == '\'') {
      std::string text = read_string();
      if (!error_.empty()) return std::nullopt;
      return TomlValue{TomlValue::Kind::kString, std::move(text)};
    }
    if (peek() == '{') {
      fail_with("expected a value, found an inline table, which is not read");
      return std::nullopt;
    }
    std::string word;
    while (!at_end() && (is_bare(peek()) || peek() == '+' || peek() == '.' || peek() == ':')) word += take();
    if (word == "true" || word == "false") return TomlValue{TomlValue::Kind::kBool, word};
    if (auto number = number_of(word)) return TomlValue{TomlValue::Kind::kNumber, std::move(*number)};
    if (word.empty())
      fail_with(fmt::format("expected a value, found {}", found()));
    else
      fail_with(fmt::format("expected a number, true, false or a text in quotes, found {}", word.substr(0, 60)));
    return std::nullopt;
  }

  // Underscores stand between digits.
  static std::optional<std::string> number_of(std::string_view word) {
    std::string digits;
    for (size_t i = 0; i < word.size(); ++i) {
      const auto is_digit = [&](size_t at) { return at < word.size() && word[at] >= '0' && word[at] <= '9'; };
      if (word[i] == '_' && !(i > 0 && is_digit(i - 1) && is_digit(i + 1))) return std::nullopt;
      if (word[i] != '_' && !(i == 0 && word[i] == '+')) digits += word[i];
    }
    if (digits.find_first_of("0123456789") == std::string::npos) return std::nullopt;
    double ignored = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), ignored);
    if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
    return digits;
  }

  std::string read_string() {
    const char quote = take();
    if (text_.substr(at_).starts_with(std::string(2, quote))) {
      fail_with("expected a text in one line, found one of several lines, which is not read");
      return {};
    }
    std::string out;
    while (error_.empty()) {
      if (at_end() || peek() == '\n') {
        fail_with(fmt::format("expected {} at the end of a text, found {}", quote, found()));
        break;
      }
      const char c = take();
      if (c == quote) break;
      if (c == '\\' && quote == '"')
        out += read_escape();
      else
        out += c;
    }
    return out;
  }

  std::string read_escape() {
    constexpr std::string_view kNames = "btnfr\"\\", kBytes = "\b\t\n\f\r\"\\";
    const char c = at_end() ? '\0' : take();
    if (const size_t which = kNames.find(c); which != kNames.npos && c != '\0') return {kBytes[which]};
    const size_t count = c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code = 0;
    const std::string_view digits = text_.substr(std::min(at_, text_.size()), count);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    const bool is_code = count > 0 && digits.size() == count && error == std::errc() && end == digits.data() + count &&
                         code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    if (!is_code) {
      fail_with("expected one of \\b \\t \\n \\f \\r \\\" \\\\ \\uXXXX \\UXXXXXXXX, found another escape");
      return {};
    }
    at_ += count;
    return utf8_of(code);
  }

  const std::string_view text_;
  size_t at_ = 0, line_ = 1;
  std::string error_;
  std::vector<std::string> table_;
  std::vector<TomlEntry> entries_;
  std::set<std::vector<std::string>> seen_;
};

}  // namespace

Result<std::vector<TomlEntry>> parse_toml(std::string_view text) {
  if (text.size() > kBytesMax)
    return make_error(ErrorCode::kInvalidArgument, "expected at most {} bytes, found {}", kBytesMax, text.size());
  if (!is_valid_utf8(text)) return make_error(ErrorCode::kInvalidArgument, "expected UTF-8, found bytes that are not");
  return Reader(text).read();
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += fmt::format("\\{}", c);
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out + "\"";
}

}  // namespace llmrt::cli
