// What the server knows of the one model it serves. Immutable once the server runs; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/text/chat_template.h"
#include "core/text/tokenizer.h"

namespace llmrt::server {

// Which program serves, on which device: labels of /metrics' info. Empty: not known.
struct ServedOrigin {
  std::string version;
  std::string backend, device, device_name;  // "cuda", "cuda:0", as the driver calls it
  std::string kv_dtype;
};

struct ServedModel {
  std::string id;       // as clients name it
  int64_t created = 0;  // seconds since 1970
  uint32_t context_max = 0;
  uint32_t vocab_size = 0;
  uint32_t block_tokens = 0;                          // of the KV pool, for reports
  std::shared_ptr<const Tokenizer> tokenizer;         // null: token ids only
  std::shared_ptr<const ChatTemplate> chat_template;  // null: no chat
  std::string no_chat_reason;                         // why there is none
  // The most bytes of a text that may fit in the context, as Server::listen finds (text_bytes_max); 0: no such bound.
  size_t text_bytes_max = 0;
  ServedOrigin origin;
};

}  // namespace llmrt::server
