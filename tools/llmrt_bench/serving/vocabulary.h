// The words that grammars of a benchmark are made over. A synthetic model has none, so they come from a file or are
// made up.
#pragma once

#include <memory>
#include <string>

#include "core/grammar/token_vocabulary.h"
#include "core/model/model.h"

namespace llmrt::bench {

// Of the GGUF file at `path`, which needs no weights (llama.cpp's models/ggml-vocab-*.gguf); where it is empty, of the
// model; of a model that has none, made up. As many tokens as the model has: what a file has more is left out, what it
// lacks stands for no text.
Result<std::shared_ptr<const TokenVocabulary>> grammar_vocabulary(const Model& model, const std::string& path);

// Deterministic: the characters that JSON needs, all other bytes, whitespace, punctuation of JSON, numbers of up to
// three digits, English words, and then strings of 2 to 10 random letters, half of them behind a space. The last token
// ends an answer. Of fewer than 320 tokens only the first of these.
std::shared_ptr<const TokenVocabulary> made_up_vocabulary(uint32_t num_tokens);

}  // namespace llmrt::bench
