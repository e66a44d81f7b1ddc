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
  // Plain tokens are those of plain characters alone: whole code points but controls, quotes and backslashes.
  static constexpr uint32_t kCharsCounted = 16;
  // Lengths that a terminal is tried for, the least first.
  static constexpr std::array<uint32_t, 4> kSliceChars = {10, kCharsCounted, 30, UINT32_MAX};

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
  // All tokens with bytes.
  const std::vector<uint32_t>& text_tokens() const { return text_tokens_; }

  // Plain tokens of at most `chars` characters, and a tree that holds all longer ones (and maybe more); null where it
  // would be the whole vocabulary's.
  struct Slice {
    uint32_t chars;
    const std::vector<uint32_t>* bits;
    const TokenTrie* longer;
  };
  // The largest slice of at most so many characters. It is of exactly so many up to kCharsCounted, and has a tree from
  // the first of kSliceChars on.
  Slice plain_tokens(uint32_t chars_max) const;
  // Tokens that are not plain.
  const TokenTrie& other_tokens() const { return other_; }
  size_t held_bytes() const;

 private:
  std::vector<std::string> bytes_;
  std::vector<int32_t> end_tokens_;
  std::vector<uint32_t> text_tokens_;
  TokenTrie trie_, other_;
  // By the most characters: 0 to kCharsCounted, then kSliceChars' that are more.
  std::vector<uint32_t> slice_chars_;
  std::vector<std::vector<uint32_t>> slice_bits_;
  std::vector<std::pair<uint32_t, TokenTrie>> longer_;  // than so many characters; the least first
};

}  // namespace llmrt
