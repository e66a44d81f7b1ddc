// What reading a body needs beside the body and the model. Plain values.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace llmrt::server {

struct ParseContext {
  uint64_t random_seed = 0;           // where the client gives no seed
  bool strict_fields = false;         // what is unknown is refused, in messages too
  bool keeps_client_headers = false;  // /v1/messages: a header line in the system text stays
  // From the headers x-request-class and x-cache-salt; empty = none. A field of the body wins.
  std::string_view request_class = {}, cache_salt = {};
  // What the caller's key keeps the client's salt apart by (key_ring.h); empty: nothing.
  std::string_view key_salt = {};
  // The adapters that the caller's key may name; null: any.
  const std::vector<std::string>* key_adapters = nullptr;
  // Set when the client has gone; may be null. The result is an ApiError then.
  const std::atomic<bool>* cancelled = nullptr;

  bool is_cancelled() const { return cancelled != nullptr && cancelled->load(std::memory_order_relaxed); }
};

// What the reply says beside its body.
struct ParseNotes {
  std::vector<std::pair<std::string, std::string>> headers;  // x-llmrt-ignored, x-llmrt-max-tokens
  // Fields without effect that no table knows, and dropped parts of messages ("tool_content.image_url"): at most
  // kIgnoredNamesMax, cleaned, as the header has them.
  std::vector<std::string> ignored_fields;
};

}  // namespace llmrt::server
