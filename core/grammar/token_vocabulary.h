// A tokenizer's vocabulary as masks need it: the tokens' bytes as trees, and sets of tokens that are allowed together
// wherever plain text may stand (slices, after llguidance). Made once per model; immutable; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/grammar/token_trie.h"

namespace llmrt {

class Tokenizer;

class TokenVocabulary {
 public:
  // Tokens of plain characters (whole code points but controls, quotes and backslashes), at most so many each.
  static constexpr std::array<uint32_t, 3> kSliceChars = {UINT32_MAX, 30, 10};
  struct Slice {
    std::vector<uint32_t> bits;  // its tokens
    TokenTrie rest;              // all others
  };

  // `bytes[v]`: of token v; empty: it stands for no text (special tokens, gaps). At most `num_ids` ids are in a mask.
  // end_tokens: end of generation.
  TokenVocabulary(std::vector<std::string> bytes, std::vector<int32_t> end_tokens);
  // Special tokens stand for no text.
  static std::shared_ptr<const TokenVocabulary> create(const Tokenizer& tokenizer);

  uint32_t num_tokens() const { return static_cast<uint32_t>(bytes_.size()); }
  uint32_t num_words() const { return (num_tokens() + 31) / 32; }
  std::string_view bytes(int32_t token) const { return bytes_[static_cast<size_t>(token)]; }
  std::span<const int32_t> end_tokens() const { return end_tokens_; }
  bool is_end(int32_t token) const;
  const TokenTrie& trie() const { return trie_; }
  const Slice& slice(size_t i) const { return slices_[i]; }
  // All tokens with bytes.
  const std::vector<uint32_t>& text_tokens() const { return text_tokens_; }
  size_t held_bytes() const;

 private:
  std::vector<std::string> bytes_;
  std::vector<int32_t> end_tokens_;
  std::vector<uint32_t> text_tokens_;
  TokenTrie trie_;
  std::vector<Slice> slices_;
};

}  // namespace llmrt
