// A model of 256 byte tokens and a few special ones: token i is byte i, so texts and ids can be read off each other.
#pragma once

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "server/served_model.h"

namespace llmrt::server {

inline constexpr TokenId kStartToken = 256, kEndToken = 257;
inline constexpr uint32_t kLetterVocabulary = 258;

class LetterTokenizer : public Tokenizer {
 public:
  // marks: special tokens of a chat format behind the letter model's own; one of them that has the same name takes it.
  explicit LetterTokenizer(const std::vector<std::string>& marks = {}) {
    vocabulary_.model = "letters";
    for (int i = 0; i < 256; ++i) vocabulary_.tokens.emplace_back(1, static_cast<char>(i));
    for (const char* own : {"<|start|>", "<|end|>"})
      vocabulary_.tokens.push_back((std::ranges::count(marks, own) > 0 ? "<|none|>" : "") + std::string(own));
    vocabulary_.eos = kEndToken;
    vocabulary_.types.assign(vocabulary_.tokens.size(), TokenType::kNormal);
    vocabulary_.types[kStartToken] = vocabulary_.types[kEndToken] = TokenType::kControl;
    for (const std::string& mark : marks) {
      if (mark == "<|return|>") ends_.push_back(static_cast<TokenId>(vocabulary_.tokens.size()));
      vocabulary_.tokens.push_back(mark);
      vocabulary_.types.push_back(TokenType::kControl);
    }
  }
  // The longest special token that stands there, else a byte.
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

inline ServedModel letter_model(uint32_t context_max = 256) {
  ServedModel model;
  model.id = "letters";
  model.created = 1;
  model.context_max = context_max;
  model.vocab_size = kLetterVocabulary;
  model.tokenizer = std::make_shared<LetterTokenizer>();
  auto compiled = ChatTemplate::compile(
      "{% for m in messages %}<|start|>{{ m.role }}:{{ m.content }}<|end|>{% endfor %}"
      "{% if add_generation_prompt %}<|start|>assistant:{% endif %}");
  if (!compiled) throw std::runtime_error(compiled.error().message);
  model.chat_template = std::move(*compiled);
  return model;
}

}  // namespace llmrt::server
