// Who may use the server: the keys with their accounts, read again by reload(). Without a key everybody may, as nobody
// in particular. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/access_figures.h"
#include "server/api_error.h"
#include "server/api_keys.h"
#include "server/http.h"
#include "server/key_account.h"

namespace llmrt::server {

struct Route;

// Whose request it is: the key's settings as they were when it came. No account: no key is needed.
struct Caller {
  ApiKey key;
  std::shared_ptr<KeyAccount> account;
};

class KeyRing {
 public:
  static constexpr const char* kEnvironmentKey = "default";  // the name of the key from LLMRT_API_KEY

  struct Settings {
    std::string key_file = {};  // empty: none
    std::string key = {};       // one more, named kEnvironmentKey; empty: none
    bool open_metrics = false;  // /metrics needs no key
  };

  // Reads the keys; the error names file and line.
  static Result<std::unique_ptr<KeyRing>> open(const Settings& settings);
  // Reads them again. Where that fails all stays as it was. Accounts go on by name.
  Status reload(TimeNs now);

  bool has_keys() const;
  std::vector<std::string> warnings() const;  // of what was read last

  // The caller of this request, or 401. `audit`: for the log, what was wrong; it never holds a secret.
  ApiResult<Caller> admit(const RequestHead& head, const Route& route, std::string* audit);
  // The caller behind a name that admit() gave; nothing: its key is gone. An empty name: nobody in particular.
  std::optional<Caller> find(std::string_view name) const;
  AccessFigures figures() const;

 private:
  explicit KeyRing(Settings settings) : settings_(std::move(settings)) {}
  Result<ApiKeys> read() const;

  const Settings settings_;
  mutable std::mutex mutex_;
  ApiKeys keys_;
  std::map<std::string, std::shared_ptr<KeyAccount>> accounts_;  // of keys_, by name
  uint64_t missing_ = 0, wrong_ = 0, reloads_ = 0, reload_failures_ = 0;
};

// Whether a request of this route needs a key, where there are keys. Routes that are nobody's do.
bool needs_key(const RequestHead& head, const Route& route, bool open_metrics);
// 429 for a key that has used up what it may.
ApiError over_limit(const KeyRefusal& refusal);
// x-ratelimit-limit-requests and others, as OpenAI's clients read them; none for a key without rates.
void add_rate_headers(const KeyRates& rates, Headers* headers);
// The salt of a request of a key that has one: nobody else can name it, whatever salt a client asks for.
std::string scoped_salt(std::string_view key_salt, std::string_view client_salt);

}  // namespace llmrt::server
