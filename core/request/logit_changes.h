// All that is added to the logits of a branch's next token, as one list. The whole order of sampling is the same on
// every device:
//
//   penalties (repetition, then presence and frequency)
//   logit_bias, min_tokens, bad_words, no_repeat_ngram, then the request's processors in their order: one sum
//   the mask of a grammar: other tokens count as minus infinity
//   temperature, the filters in the order of kSamplingParameters, noise, argmax
//
// A ban is -inf and the other biases are finite, so nothing behind a ban revives the token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/request/request.h"

namespace llmrt {

// Whether the request changes logits at all (kRowBias).
bool changes_logits(const Request& request);
// Whether its changes, or its mask, depend on the newest token: then they can be told only when all tokens before are
// known.
bool reads_newest_token(const Request& request);

// *changes becomes one entry for each token that is changed, by token id. `tokens`: prompt (num_prompt of them) and
// output as far as they are known: all of it where reads_newest_token(). `output_position`: of the token to come.
void find_logit_changes(const Request& request, std::span<const int32_t> tokens, uint32_t num_prompt,
                        uint32_t output_position, std::span<const int32_t> end_of_generation,
                        std::vector<TokenBias>* changes);

// The most entries that a request may have, in a context of that many tokens: what every request may have, and what
// only those have that reads_newest_token() or bad words.
uint64_t plain_changes_max(size_t num_ends);
uint64_t further_changes_max(uint32_t context_max);

// What is applied to the request's logits, in order, by name: "penalties", "logit_bias", ..., "temperature", then
// filters.
std::vector<std::string> processor_names(const Request& request);

}  // namespace llmrt
