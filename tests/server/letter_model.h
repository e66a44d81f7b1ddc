// A model of 256 byte tokens and a few special ones: token i is byte i, so texts and ids can be read off each other.
#pragma once

#include <array>
#include <memory>
#include <stdexcept>

#include "server/served_model.h"

namespace llmrt::server {

inline constexpr TokenId kStartToken = 256, kEndToken = 257;
inline constexpr uint32_t kLetterVocabulary = 258;

class LetterTokenizer : public Tokenizer {
 public:
  LetterTokenizer() {
    vocabulary_.model = "letters";
    for (int i = 0; i < 256; ++i) vocabulary_.tokens.emplace_back(1, static_cast<char>(i));
    vocabulary_.tokens.emplace_back("<|start|>");
    vocabulary_.tokens.emplace_back("<|end|>");
    vocabulary_.eos = kEndToken;
  }
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<TokenId> ids;
    for (size_t i = 0; i < text.size();) {
      const std::string_view rest = text.substr(i);
      if (options.parse_special && rest.starts_with("<|start|>")) {
        ids.push_back(kStartToken);
        i += 9;
      } else if (options.parse_special && rest.starts_with("<|end|>")) {
        ids.push_back(kEndToken);
        i += 7;
      } else {
        ids.push_back(static_cast<unsigned char>(text[i++]));
      }
    }
    return ids;
  }
  std::vector<TokenId> encode_pieces(std::span<const TextPiece> pieces, bool) const override {
    std::vector<TokenId> ids;
    for (const TextPiece& piece : pieces) {
      const std::vector<TokenId> part = encode(piece.text, {piece.from_template, false});
      ids.insert(ids.end(), part.begin(), part.end());
    }
    return ids;
  }
  std::string_view token_bytes(TokenId id, bool special) const override {
    if (id < 0 || id >= static_cast<TokenId>(kLetterVocabulary) || (id >= kStartToken && !special)) return {};
    return vocabulary_.tokens[static_cast<size_t>(id)];
  }
  std::string decode(std::span<const TokenId> ids, bool special) const override {
    std::string text;
    for (TokenId id : ids) text += token_bytes(id, special);
    return text;
  }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  bool is_end_of_generation(TokenId id) const override { return id == kEndToken; }
  std::span<const TokenId> end_of_generation_ids() const override { return ends_; }

 private:
  Vocabulary vocabulary_;
  std::array<TokenId, 1> ends_{kEndToken};
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
