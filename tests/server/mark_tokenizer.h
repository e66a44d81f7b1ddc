// The letter model's tokens, and the special tokens of a chat format behind them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/server/letter_model.h"

namespace llmrt::server {

class MarkTokenizer : public Tokenizer {
 public:
  // Those that end an answer there, and the letter model's own.
  explicit MarkTokenizer(const std::vector<std::string>& marks) : vocabulary_(LetterTokenizer().vocabulary()) {
    vocabulary_.types.assign(vocabulary_.tokens.size(), TokenType::kNormal);
    vocabulary_.types[kStartToken] = vocabulary_.types[kEndToken] = TokenType::kControl;
    for (const std::string& mark : marks) {
      if (mark == "<|start|>" || mark == "<|end|>") {
        vocabulary_.tokens[static_cast<size_t>(mark == "<|start|>" ? kStartToken : kEndToken)] = "<|none|>" + mark;
      }
      if (mark == "<|return|>") ends_.push_back(static_cast<TokenId>(vocabulary_.tokens.size()));
      vocabulary_.tokens.push_back(mark);
      vocabulary_.types.push_back(TokenType::kControl);
    }
  }
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<TokenId> ids;
    for (size_t i = 0; i < text.size();) {
      TokenId best = static_cast<unsigned char>(text[i]);
      size_t size = 1;
      for (size_t id = 256; id < vocabulary_.tokens.size() && options.parse_special; ++id) {
        const std::string& token = vocabulary_.tokens[id];
        if (token.size() <= size || !text.substr(i).starts_with(token)) continue;
        best = static_cast<TokenId>(id);
        size = token.size();
      }
      ids.push_back(best);
      i += size;
    }
    return ids;
  }
  std::vector<TokenId> encode_pieces(std::span<const TextPiece> pieces, bool) const override {
    std::vector<TokenId> ids;
    for (const TextPiece& piece : pieces) {
      const std::vector<TokenId> part = encode(piece.text, {.parse_special = piece.from_template, .add_bos = false});
      ids.insert(ids.end(), part.begin(), part.end());
    }
    return ids;
  }
  TokenId find_special(std::string_view text) const override {
    for (size_t id = 256; id < vocabulary_.tokens.size(); ++id) {
      if (vocabulary_.tokens[id] == text) return static_cast<TokenId>(id);
    }
    return -1;
  }
  std::string_view token_bytes(TokenId id, bool special) const override {
    if (id < 0 || id >= static_cast<TokenId>(vocabulary_.tokens.size()) || (id >= kStartToken && !special)) return {};
    return vocabulary_.tokens[static_cast<size_t>(id)];
  }
  std::string decode(std::span<const TokenId> ids, bool special) const override {
    std::string text;
    for (TokenId id : ids) text += token_bytes(id, special);
    return text;
  }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  bool is_end_of_generation(TokenId id) const override { return std::ranges::count(ends_, id) > 0; }
  std::span<const TokenId> end_of_generation_ids() const override { return ends_; }

 private:
  Vocabulary vocabulary_;
  std::vector<TokenId> ends_{kEndToken};
};

}  // namespace llmrt::server
