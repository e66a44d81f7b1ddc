#include "core/sample/token_bans.h"

#include <algorithm>
#include <array>

#include "core/base/check.h"
#include "core/sample/sampling_params.h"

namespace llmrt {

// The tail is sought by Knuth, Morris and Pratt (1977): no text makes it compare more than twice as often as there are
// tokens.
void ban_repeats(std::span<const int32_t> tokens, uint32_t n, std::vector<TokenBias>* changes) {
  LLMRT_CHECK(n >= 1 && n <= kNoRepeatNgramMax, "no_repeat_ngram_size");
  const size_t num_before = n - 1;
  if (tokens.size() < num_before) return;
  if (num_before == 0) {
    for (const int32_t token : tokens) changes->push_back({token, kBan});
    return;
  }
  const std::span<const int32_t> tail = tokens.last(num_before);
  // Of the tail's first k + 1 tokens: how many of the last are its first ones, too, but not all.
  std::array<uint16_t, kNoRepeatNgramMax> borders;
  borders[0] = 0;
  for (size_t k = 1, border = 0; k < num_before; ++k) {
    while (border > 0 && tail[k] != tail[border]) border = borders[border - 1];
    if (tail[k] == tail[border]) ++border;
    borders[k] = static_cast<uint16_t>(border);
  }
  size_t num_equal = 0;  // of the tail's first tokens, before and at tokens[i]
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    if (num_equal == num_before) num_equal = borders[num_equal - 1];
    while (num_equal > 0 && tokens[i] != tail[num_equal]) num_equal = borders[num_equal - 1];
    if (tokens[i] == tail[num_equal]) ++num_equal;
    if (num_equal == num_before) changes->push_back({tokens[i + 1], kBan});
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
