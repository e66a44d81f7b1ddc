// The stop matcher's meaning in the plainest form: looks at the whole text again after every byte.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "core/request/request.h"
#include "core/stop/stop_matcher.h"

namespace llmrt::test {

struct NaiveMatcher {
  StopParams params;
  uint32_t min_tokens = 0, max_tokens = 0;
  std::span<const int32_t> end_of_generation = {};
  std::string text = {};
  uint32_t num_tokens = 0;

  static bool contains(std::span<const int32_t> ids, int32_t token) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  }
  uint32_t longest_match() const {
    size_t longest = 0;
    for (const std::string& string : params.strings) {
      if (text.ends_with(string)) longest = std::max(longest, string.size());
    }
    return static_cast<uint32_t>(longest);
  }
  uint32_t held() const {
    for (size_t length = text.size(); length > 0; --length) {
      const std::string tail = text.substr(text.size() - length);
      for (const std::string& string : params.strings) {
        if (string.size() > length && string.starts_with(tail)) return static_cast<uint32_t>(length);
      }
    }
    return 0;
  }
  StopVerdict advance(int32_t token, std::string_view bytes) {
    const uint32_t num_bytes = static_cast<uint32_t>(bytes.size());
    ++num_tokens;
    if (num_tokens > min_tokens && !params.ignore_eos && contains(end_of_generation, token)) {
      return {.cut_bytes = num_bytes, .finish = FinishReason::kEos};
    }
    if (num_tokens > min_tokens && contains(params.token_ids, token)) {
      return {.cut_bytes = params.include_string ? 0 : num_bytes, .finish = FinishReason::kStopToken};
    }
    for (uint32_t i = 0; i < num_bytes; ++i) {
      text += bytes[i];
      const uint32_t match = longest_match();
      if (match == 0 || num_tokens < min_tokens) continue;
      const uint32_t after = num_bytes - i - 1;
      return {.cut_bytes = after + (params.include_string ? 0 : match), .finish = FinishReason::kStopString};
    }
    if (num_tokens == max_tokens) return {.finish = FinishReason::kLength};
    return {.hold_bytes = held()};
  }
};

}  // namespace llmrt::test
