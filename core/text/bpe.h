// Byte-level BPE ("gpt2" in GGUF): GPT-2, Llama 3, Qwen, SmolLM. Text is cut by a pre-tokenizer, each piece's bytes
// merge by rank.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/text/merges.h"
#include "core/text/pre_tokenizer.h"
#include "core/text/tokenizer_base.h"

namespace llmrt {

class ByteBpeTokenizer : public TokenizerBase {
 public:
  // `vocabulary` has passed the checks common to both kinds.
  static Result<std::unique_ptr<Tokenizer>> create(Vocabulary vocabulary);

 private:
  ByteBpeTokenizer(Vocabulary vocabulary, std::unique_ptr<PreTokenizer> pre_tokenizer);
  Status load_merges();
  void load_tokens();
  void encode_plain(std::string_view text, bool after_special, std::vector<TokenId>& out) const override;
  void encode_word(std::string_view bytes, std::vector<TokenId>& scratch, std::vector<TokenId>& out) const;

  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  MergeTable merges_;
  std::array<TokenId, 256> byte_ids_;  // -1: the vocabulary lacks the byte, which is dropped
  std::unordered_map<std::string_view, TokenId> whole_words_;  // only where merges are ignored; views of token_bytes
};

}  // namespace llmrt
