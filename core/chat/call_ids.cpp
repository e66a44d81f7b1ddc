#include "core/chat/call_ids.h"

#include <algorithm>

#include "core/base/sha256.h"

namespace llmrt {

std::string prompt_call_id(const ChatFormat& format, std::string_view id) {
  constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const size_t length = format.call_id.length;
  const bool fits = std::ranges::all_of(id, [&](char c) { return kLetters.find(c) != std::string_view::npos; });
  if (length == 0 || (fits && id.size() == length)) return std::string(id);
  const auto digest = Sha256().add_text(id).finish();
  std::string result;
  for (size_t i = 0; i < std::min(length, digest.size()); ++i) {
    result += kLetters[static_cast<uint8_t>(digest[i]) % kLetters.size()];
  }
  return result;
}

}  // namespace llmrt
