// SentencePiece BPE ("llama" in GGUF): pieces merge by score, or, where the vocabulary has merges, the pairs that these
// name by their rank, as Hugging Face's `tokenizers` does; what no piece covers falls back to bytes. The text is
// taken as it is (identity normalization). As in Hugging Face's LlamaTokenizerFast (legacy), special and user-defined
// tokens are found in the raw text first; in each piece of plain text between them spaces become U+2581, and one is put
// in front where the vocabulary says so.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
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
  using Splits = KeyedViewMap<std::pair<std::string_view, std::string_view>>;

  explicit SentencePieceTokenizer(Vocabulary vocabulary);
  Status load_tokens();
  void rank_pieces();
  void encode_plain(std::string_view text, bool is_first, const EncodeLimit& limit,
                    std::vector<TokenId>& out) const override;
  void encode_stretch(std::string_view text, const EncodeLimit& limit, std::vector<Symbol>& symbols,
                      std::vector<TokenId>& out) const;
  void encode_by_merges(std::string_view text, const EncodeLimit& limit, std::vector<TokenId>& scratch,
                        std::vector<TokenId>& out) const;
  bool has_space_prefix(std::string_view text, bool is_first) const;
  template <typename Queue>
  void merge(std::string_view text, std::vector<Symbol>& symbols, Splits& splits, Queue& queue,
             const EncodeLimit& limit) const;
  size_t text_bytes_max(size_t tokens) const override;
  std::string_view within(std::string_view text, const EncodeLimit& limit, size_t num_tokens) const;
  void append_piece(std::string_view piece, const Splits& splits, std::vector<TokenId>& out) const;
  void append_unknown(std::string_view piece, std::vector<TokenId>& out) const;
  const TokenId* find_piece(std::string_view piece) const;

  TokenIds pieces_;              // normal, user defined and unused; views of vocabulary_.tokens
  std::vector<uint32_t> ranks_;  // of each token's score: 0 for the best, the same for equals
  uint32_t num_ranks_ = 0;
  MergeTable merges_;                  // empty: by score
  std::array<TokenId, 256> byte_ids_;  // -1: no such byte piece
  bool has_all_bytes_ = false;
  CoverBound cover_;  // of texts with U+2581 for spaces; holds where the vocabulary has all bytes
  size_t piece_bytes_max_ = 0;
  bool words_are_apart_ = true;  // no piece goes on after a word's end, so each word can be merged alone
};

}  // namespace llmrt
