// What both kinds of tokenizer share: the checked vocabulary, special tokens in raw text, the bytes of each token and
// the end-of-generation set. A kind adds how plain text is encoded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/keyed_hash.h"
#include "core/text/cover_bound.h"
#include "core/text/encode_limit.h"
#include "core/text/merges.h"
#include "core/text/special_tokens.h"
#include "core/text/tokenizer.h"

namespace llmrt {

// Id by text; of two tokens with the same text the first one.
using TokenIds = KeyedViewMap<TokenId>;

// Tokens that end a turn in the models that have them, and the separators that llama.cpp counts too.
std::span<const std::string_view> end_of_turn_names();

class TokenizerBase : public Tokenizer {
 public:
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override;
  std::vector<TokenId> encode_pieces(std::span<const TextPiece> pieces, bool add_bos) const override;
  std::vector<TokenId> encode_pieces(std::span<const TextPiece> pieces, const EncodeOptions& options) const override;
  TokenId find_special(std::string_view text) const override { return specials_.find_control(text); }
  std::string_view token_bytes(TokenId id, bool special) const override;
  std::string decode(std::span<const TokenId> ids, bool special) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  bool is_end_of_generation(TokenId id) const override;
  std::span<const TokenId> end_of_generation_ids() const override { return end_ids_; }

 protected:
  explicit TokenizerBase(Vocabulary vocabulary);

  // Appends the ids of a plain stretch between special and user-defined tokens: valid UTF-8, not empty. `is_first`: the
  // whole text begins here. May stop once `limit` is over.
  virtual void encode_plain(std::string_view text, bool is_first, const EncodeLimit& limit,
                            std::vector<TokenId>& out) const = 0;
  // The most bytes of a text that `tokens` tokens can stand for; EncodeLimit::kNone where the vocabulary has no bound.
  virtual size_t text_bytes_max(size_t tokens) const = 0;

  TokenType type(TokenId id) const {
    return vocabulary_.types.empty() ? TokenType::kNormal : vocabulary_.types[static_cast<size_t>(id)];
  }
  // Control and unknown: never shown unless asked for, never made from data.
  bool is_special(TokenId id) const { return type(id) == TokenType::kControl || type(id) == TokenType::kUnknown; }
  bool in_vocabulary(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < vocabulary_.tokens.size(); }
  TokenIds ids_by_text() const;
  // The vocabulary's merges, each of two tokens that make a third. Error: corrupt_file.
  Status load_merges(MergeTable* out) const;
  void append_token_bytes(std::string_view bytes);  // called once for each id, in order

  Vocabulary vocabulary_;
  SpecialTokens specials_;  // filled and built by the kind; control, unknown and user-defined tokens

 private:
  void find_end_of_generation();
  std::vector<TokenId> encode_valid(std::string_view text, const TextRanges& control_ranges,
                                    const EncodeOptions& options) const;
  size_t text_bytes_max(const EncodeOptions& options) const;

  std::string bytes_;  // of all tokens, one after the other
  std::vector<size_t> byte_ends_;
  std::vector<TokenId> end_ids_;
};

}  // namespace llmrt
