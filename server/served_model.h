// What the server knows of the one model it serves. Immutable once the server runs; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/chat/resolved_format.h"
#include "core/grammar/grammar_compiler.h"
#include "core/platform/device_monitor.h"
#include "core/request/policy.h"
#include "core/text/chat_template.h"
#include "core/text/fim_tokens.h"
#include "core/text/tokenizer.h"
#include "server/adapter_shelf.h"

namespace llmrt::server {

// Which program serves, on which device: labels of /metrics' info. Empty: not known.
struct ServedOrigin {
  std::string version;
  std::string backend, device, device_name;  // "cuda", "cuda:0", as the driver calls it
  std::string kv_dtype;
};

// The model's file, as Ollama's clients are told of it. Empty: not known.
struct ServedFile {
  std::string architecture, encoding;  // "llama", "q4_1"
  uint64_t num_weights = 0, num_bytes = 0;
  std::string digest;  // hexadecimal
};

struct ServedModel {
  std::string id;       // as clients name it
  int64_t created = 0;  // seconds since 1970
  uint32_t context_max = 0;
  uint32_t vocab_size = 0;
  uint32_t block_tokens = 0;                          // of the KV pool, for reports
  bool has_draft_model = false;                       // beside it, for requests that ask for its drafts
  std::shared_ptr<const Tokenizer> tokenizer;         // null: token ids only
  std::shared_ptr<const ChatTemplate> chat_template;  // null: no chat
  std::string no_chat_reason;                         // why there is none
  // The template shows system messages between others where they stand, as finish_model finds.
  bool shows_inline_system = false;
  // The most bytes of a text that may fit in the context, as Server::listen finds (text_bytes_max); 0: no such bound.
  size_t text_bytes_max = 0;
  ServedOrigin origin;
  std::shared_ptr<const DeviceMonitor> device_monitor;  // of the origin's device; null: nobody tells of it
  ServedFile file;
  // How answers of chats are written; null: as plain text.
  std::shared_ptr<const ResolvedFormat> chat_format;
  bool reads_answers = true;  // thoughts and calls are told apart from content
  // The field that thoughts are told in: "reasoning_content", "reasoning", or "none": they stay in the content.
  std::string thought_field = "reasoning_content";
  std::optional<uint32_t> thought_tokens_max = {};  // of an answer, where a request says nothing of it
  std::optional<FimTokens> fim = {};                // nothing: no text is written between two others
  std::shared_ptr<GrammarCompiler> grammars;        // null without a tokenizer
  std::shared_ptr<const Policy> policy;             // of every answer; null: none
  std::shared_ptr<AdapterShelf> adapters;           // of all models of the process; null: there are none
  // Reads one for this model's engine; any thread, slow. Null: the engine takes none.
  std::function<Result<ReadyAdapter>(const std::string& path)> load_adapter;
  bool tells_structures = false;  // requests say how their constraint is made, for sample traces
};

}  // namespace llmrt::server
