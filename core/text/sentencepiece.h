// SentencePiece BPE ("llama" in GGUF): pieces merge by score, what no piece covers falls back to bytes. The text is
// taken as it is (identity normalization), spaces become U+2581, one is put in front where the vocabulary says so.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/text/tokenizer_base.h"

namespace llmrt {

class SentencePieceTokenizer : public TokenizerBase {
 public:
  // `vocabulary` has passed the checks common to both kinds, and has a score for each token.
  static Result<std::unique_ptr<Tokenizer>> create(Vocabulary vocabulary);

  std::string decode(std::span<const TokenId> ids, bool special) const override;

 private:
  struct Symbol;
  // How a piece of type "unused" came about: it may serve as a step, but is taken apart again in the result.
  using Splits = std::unordered_map<std::string_view, std::pair<std::string_view, std::string_view>>;

  explicit SentencePieceTokenizer(Vocabulary vocabulary);
  Status load_tokens();
  void encode_plain(std::string_view text, bool after_special, std::vector<TokenId>& out) const override;
  void encode_stretch(std::string_view text, std::vector<Symbol>& symbols, std::vector<TokenId>& out) const;
  void merge(std::string_view text, std::vector<Symbol>& symbols, Splits& splits) const;
  void append_piece(std::string_view piece, const Splits& splits, std::vector<TokenId>& out) const;
  void append_unknown(std::string_view piece, std::vector<TokenId>& out) const;
  const TokenId* find_piece(std::string_view piece) const;

  TokenIds pieces_;                    // normal, user defined and unused; views of vocabulary_.tokens
  SpecialTokens user_defined_;         // matched in the text with U+2581 for spaces; never merged
  std::array<TokenId, 256> byte_ids_;  // -1: no such byte piece
  size_t piece_bytes_max_ = 0;
  bool words_are_apart_ = true;        // no piece goes on after a word's end, so each word can be merged alone
};

}  // namespace llmrt
