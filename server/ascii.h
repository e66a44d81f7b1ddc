// Letters of ASCII without case, and blanks; other bytes stay as they are. Pure.
#pragma once

#include <string>
#include <string_view>

namespace llmrt::server {

inline char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
inline std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = lower(c);
  return out;
}

inline constexpr std::string_view kBlanks = " \t";
// Without the spaces and tabs at both ends.
inline std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace llmrt::server
