// Pieces of JSON text that writers of answers share: answers are written as text, since trees of values take several
// times the memory. Pure.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "core/grammar/json_spelling.h"
#include "server/text_pieces.h"

namespace llmrt::server {

// The inside of a JSON string. `text` is valid UTF-8.
inline void append_escaped(std::string_view text, std::string& out) {
  const auto& spellings = json_spellings();
  for (const char c : text) out += spellings[static_cast<uint8_t>(c)];
}
inline void append_string(std::string_view text, std::string& out) {
  out += '"';
  append_escaped(text, out);
  out += '"';
}

// [...], where append(i) writes member i.
template <typename Append>
void append_list(size_t count, std::string& out, Append append) {
  out += '[';
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) out += ',';
    append(i);
  }
  out += ']';
}
inline void append_ids(const std::vector<int32_t>& ids, std::string& out) {
  append_list(ids.size(), out, [&](size_t i) { fmt::format_to(std::back_inserter(out), "{}", ids[i]); });
}

// One more member of a list that grows.
inline void append_member(TextPieces& list, std::string_view member) {
  if (!list.empty()) list.append(",");
  list.append(member);
}

}  // namespace llmrt::server
