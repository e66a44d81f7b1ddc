// Byte-level BPE ("gpt2" in GGUF): GPT-2, Llama 3, Qwen, SmolLM. Text is cut by a pre-tokenizer, each piece's bytes
// merge by rank.
#pragma once

#include <array>
#include <memory>
#include <string>
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
  Status load_tokens();
  void load_bytes();
  void load_whole_words();
  void encode_plain(std::string_view text, bool is_first, const EncodeLimit& limit,
                    std::vector<TokenId>& out) const override;
  void encode_word(std::string_view bytes, const EncodeLimit& limit, std::vector<TokenId>& scratch,
                   std::vector<TokenId>& out) const;
  size_t text_bytes_max(size_t tokens) const override;
  // As much of `text` as matters: where all of it surely takes more tokens than are left, a beginning that does too.
  std::string_view within(std::string_view text, const EncodeLimit& limit, size_t num_tokens) const;

  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  MergeTable merges_;
  std::array<TokenId, 256> byte_ids_;  // -1: the vocabulary lacks the byte, which is dropped
  CoverBound cover_;
  KeyedViewMap<TokenId> whole_words_;  // only where merges are ignored; views of token_bytes
  size_t whole_word_bytes_max_ = 0;
};

}  // namespace llmrt
