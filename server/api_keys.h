// The keys that clients may use: a file of lines, read whole or refused whole. Secrets are kept as SHA-256 alone; a key
// is found by comparing hashes, in a time that does not depend on where they differ. Values; immutable once built.
//
//     # name   secret, or sha256:HEX of it     settings
//     alice    sha256:9f86d081884c7d65...      class=agent requests-per-minute=60 tokens-per-minute=200000
//     bob      llm-4f1c0a...                   concurrent=4 cache-salt=team-a
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/sha256.h"
#include "core/base/status.h"
#include "core/request/request_class.h"
#include "server/slow_clients.h"

namespace llmrt::server {

// 0: no limit.
struct KeyLimits {
  uint64_t requests_per_minute = 0;
  uint64_t tokens_per_minute = 0;  // of prompts and answers together
  uint32_t concurrent = 0;         // requests under way
  bool operator==(const KeyLimits&) const = default;
};

struct ApiKey {
  std::string name;  // in the log and in metrics; never secret
  Digest hash = {};
  KeyLimits limits = {};
  std::optional<RequestClass> request_class = {};  // of requests that name none
  // Only requests of keys with the same one share the prefix cache; empty: shared with all that have none.
  std::string cache_salt = {};
  // The adapters that its requests may name; none: any.
  std::optional<std::vector<std::string>> adapters = {};
  // What its streams have instead of the server's; 0 and none: the server's.
  std::optional<SlowClients> slow_clients = {};
  uint32_t stream_buffer_kib = 0, stall_s = 0;
};

class ApiKeys {
 public:
  static constexpr size_t kKeysMax = 1000, kFileBytesMax = 1 << 20;
  static constexpr size_t kNameBytesMax = 64, kSecretBytesMax = 512;
  static constexpr size_t kGuessableBytes = 16;  // shorter secrets are worth a warning

  // invalid_argument with the line's number, what was expected and what was found; secrets are never quoted. `place` is
  // the file's name.
  static Result<ApiKeys> parse(std::string_view text, std::string_view place);
  static Result<ApiKeys> read(const std::string& path);
  // invalid_argument: the name or the secret is there already, or one of them is out of bounds.
  Status add(ApiKey key);
  // Counts a plain secret (not by its hash).
  Status add_secret(ApiKey key, std::string_view secret);

  // The key of this secret; null: none.
  const ApiKey* find(std::string_view secret) const;
  const std::vector<ApiKey>& all() const { return keys_; }
  bool empty() const { return keys_.empty(); }
  size_t num_plain() const { return num_plain_; }          // secrets that stood in the file as they are
  size_t num_guessable() const { return num_guessable_; }  // those of them that are short

 private:
  std::vector<ApiKey> keys_;
  size_t num_plain_ = 0, num_guessable_ = 0;
};

Digest hash_secret(std::string_view secret);

}  // namespace llmrt::server
