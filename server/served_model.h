// What the server knows of the one model it serves. Immutable once the server runs; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"

namespace llmrt::server {

struct ServedModel {
  std::string id;       // as clients name it
  int64_t created = 0;  // seconds since 1970
  uint32_t context_max = 0;
  uint32_t vocab_size = 0;
  uint32_t block_tokens = 0;                          // of the KV pool, for reports
  std::shared_ptr<const Tokenizer> tokenizer;         // null: token ids only
  std::shared_ptr<const ChatTemplate> chat_template;  // null: no chat
  std::string no_chat_reason;                         // why there is none
  size_t text_bytes_max = 0;  // of a text that may fit in the context: more are refused unread; 0: not known
};

// Of byte-level vocabularies, whose every token stands for some bytes of the text, normalised: that may make nine bytes
// of a Hangul syllable three.
inline size_t text_bytes_max(const Tokenizer& tokenizer, uint32_t context_max) {
  if (tokenizer.vocabulary().model != "gpt2") return 0;
  size_t longest = 1;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id)
    longest = std::max(longest, tokenizer.token_bytes(id, true).size());
  return 3 * longest * context_max;
}

}  // namespace llmrt::server
