// Words of a client as the token sequences that spell them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/text/tokenizer.h"

namespace llmrt::server {

// `word` at the beginning of a text and behind a space: two sequences, or one where they are the same. Special tokens
// are not read as such. Other ways to cut the word into tokens are not among them.
std::vector<std::vector<int32_t>> spellings(const Tokenizer& tokenizer, std::string_view word);

}  // namespace llmrt::server
