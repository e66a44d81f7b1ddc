// Letters of ASCII without case; other bytes stay as they are. Pure.
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

}  // namespace llmrt::server
