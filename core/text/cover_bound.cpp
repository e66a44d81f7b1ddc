#include "core/text/cover_bound.h"

#include <algorithm>
#include <limits>

#include "core/base/check.h"

namespace llmrt {
namespace {

size_t index_of(char first, char second) {
  return static_cast<size_t>(static_cast<uint8_t>(first)) << 8 | static_cast<uint8_t>(second);
}

}  // namespace

CoverBound::CoverBound() : longest_(1 << 16, 1) {}

void CoverBound::add_dropped(uint8_t byte) {
  LLMRT_CHECK(longest_of_all_ == 1, "dropped bytes are told before the tokens");
  is_dropped_[byte] = drops_ = true;
}

// Counts the bytes that are never dropped, as cut() does.
void CoverBound::add(std::string_view token) {
  LLMRT_CHECK(token.size() <= UINT16_MAX, "the vocabulary's tokens have been checked for their length");
  char first = 0, second = 0;
  size_t count = 0;
  for (const char byte : token) {
    if (is_dropped_[static_cast<uint8_t>(byte)]) {
      continue;
    }
    if (count == 0) {
      first = byte;
    } else if (count == 1) {
      second = byte;
    }
    ++count;
  }
  if (count < 2) {
    return;
  }
  uint16_t& longest = longest_[index_of(first, second)];
  longest = std::max(longest, static_cast<uint16_t>(count));
  longest_of_all_ = std::max(longest_of_all_, count);
}

size_t CoverBound::cut(std::string_view text, size_t tokens) const {
  if (text.size() <= tokens) {
    return text.size();
  }
  // Positions count the bytes that are not dropped. Each is looked at when the byte behind it is known.
  size_t pos = 0;
  size_t count = 0;   // tokens taken so far
  size_t end = 0;     // what they reach at most
  size_t beyond = 0;  // what one more reaches at most
  char last = 0;
  bool has_last = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (drops_ && is_dropped_[static_cast<uint8_t>(text[i])]) {
      continue;
    }
    if (has_last) {
      beyond = std::max(beyond, pos + longest_[index_of(last, text[i])]);
      if (pos == end) {
        if (++count > tokens) {
          return i;
        }
        end = beyond;
      }
      ++pos;
    }
    last = text[i];
    has_last = true;
  }
  return text.size();
}

size_t CoverBound::bytes_max(size_t tokens) const {
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  return drops_ || tokens > kNone / longest_of_all_ ? kNone : tokens * longest_of_all_;
}

}  // namespace llmrt
