// Hard masks that depend on what stands before: tokens that would repeat an n-gram, and the ends of bad words. Both
// look at the prompt and the output alike.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/sample/logits_processor.h"

namespace llmrt {

// Bans what followed each earlier place that reads like the last n - 1 tokens: with n = 3 "the cat sat on the cat" bans
// "sat". 1 <= n <= kNoRepeatNgramMax; with n = 1 nothing may come twice. A token may be banned several times. One pass
// over the tokens, whatever they are: microseconds for thousands of them.
void ban_repeats(std::span<const int32_t> tokens, uint32_t n, std::vector<TokenBias>* changes);

// Bans the last token of each word whose other tokens stand at the end (of a word of one token: always).
void ban_words(std::span<const int32_t> tokens, std::span<const std::vector<int32_t>> words,
               std::vector<TokenBias>* changes);

}  // namespace llmrt
