#include "core/sample/token_bans.h"

#include <algorithm>

namespace llmrt {

void ban_repeats(std::span<const int32_t> tokens, uint32_t n, std::vector<TokenBias>* changes) {
  const size_t num_before = n - 1;
  if (tokens.size() < num_before) return;
  const std::span<const int32_t> tail = tokens.last(num_before);
  for (size_t i = num_before; i < tokens.size(); ++i) {
    if (num_before > 0 && tokens[i - 1] != tail.back()) continue;  // nearly everywhere
    if (std::ranges::equal(tokens.subspan(i - num_before, num_before), tail)) changes->push_back({tokens[i], kBan});
  }
}

void ban_words(std::span<const int32_t> tokens, std::span<const std::vector<int32_t>> words,
               std::vector<TokenBias>* changes) {
  for (const std::vector<int32_t>& word : words) {
    const size_t num_before = word.size() - 1;
    if (num_before > tokens.size()) continue;
    if (std::ranges::equal(std::span(word).first(num_before), tokens.last(num_before)))
      changes->push_back({word.back(), kBan});
  }
}

}  // namespace llmrt
