// Text on its way into a page.
#pragma once

#include <string>
#include <string_view>

namespace llmrt::bench {

// Whatever a record holds, as text that can only be read.
inline std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20)
      out += c;
    else
      out += ' ';
  }
  return out;
}

}  // namespace llmrt::bench
