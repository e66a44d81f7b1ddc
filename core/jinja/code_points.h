// Python's string operations on Text: positions count code points, bytes keep their origin. Text is valid UTF-8.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/jinja/meter.h"
#include "core/jinja/text.h"

namespace llmrt::jinja {

inline constexpr size_t npos = std::string_view::npos;

inline bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

int64_t count_code_points(std::string_view text);
// The byte offset of code point `index`; the size where there are fewer.
size_t offset_of(std::string_view text, int64_t index);

// `text` without leading and trailing characters of `chars` (nullopt: whitespace).
enum class Side { kBoth, kLeft, kRight };
Text strip(const Text& text, std::optional<std::string_view> chars, Side side, Meter& meter);

// num_max: how many times at most; negative = no limit. Each part costs a step.
std::vector<Text> split_at(const Text& text, std::string_view separator, int64_t num_max, Meter& meter);
std::vector<Text> rsplit_at(const Text& text, std::string_view separator, int64_t num_max, Meter& meter);
std::vector<Text> split_at_space(const Text& text, int64_t num_max, Meter& meter);
std::vector<Text> rsplit_at_space(const Text& text, int64_t num_max, Meter& meter);
std::vector<Text> split_lines(const Text& text, bool keep_ends, Meter& meter);
std::vector<Text> split_characters(const Text& text, Meter& meter);

Text replace(const Text& text, std::string_view from, const Text& to, int64_t num_max, Meter& meter);
// In time linear in both lengths. npos: not found.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);
size_t count_text(std::string_view text, std::string_view needle);

Text upper(const Text& text, Meter& meter);
Text lower(const Text& text, Meter& meter);
Text capitalize(const Text& text, Meter& meter);  // first character to title case, the others to lower
Text title(const Text& text, Meter& meter);       // each word so, as str.title does
Text swap_case(const Text& text, Meter& meter);

// The predicates of str: true where every character has the property and there is one.
bool is_digits(std::string_view text);
bool is_decimal(std::string_view text);
bool is_alpha(std::string_view text);
bool is_alphanumeric(std::string_view text);
bool is_blank(std::string_view text);
bool is_upper(std::string_view text);
bool is_lower(std::string_view text);
bool is_printable(char32_t code_point);

}  // namespace llmrt::jinja
