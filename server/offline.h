// Answers to bodies without a connection, as the lines of a batch have them: any endpoint that a model writes the
// answer of, in every dialect, as over HTTP.
#pragma once

#include <boost/json.hpp>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/router/model_host.h"
#include "server/api_error.h"

namespace llmrt::server {

struct OfflineAnswer {
  int status = 0;          // as HTTP has it
  std::string body;        // a JSON object, an error's too
  std::string request_id;  // "req-..."
  // What an answer took that ended well; cached_tokens are among the prompt's.
  uint64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
};

struct OfflineSettings {
  bool strict_fields = false;
  // The class of requests that name none themselves.
  std::string request_class = "batch";
  std::string key_salt = {};  // ParseContext::key_salt
  std::optional<std::vector<std::string>> key_adapters = {};
  bool is_beside_others = false;  // requests of the classes interactive and agent are refused
};

// Thread-safe.
class OfflineAnswerer {
 public:
  // `models` outlives this and every call.
  OfflineAnswerer(ModelHost* models, OfflineSettings settings) : models_(models), settings_(std::move(settings)) {}

  // Whether `url` with POST is such an endpoint; else why not.
  std::optional<ApiError> check_url(std::string_view url) const;
  // Blocks until the answer is whole: the thread is one for this. With `cancelled` set it ends soon, with status 499.
  OfflineAnswer answer(std::string_view url, const boost::json::object& body, const std::atomic<bool>& cancelled) const;

 private:
  ModelHost* const models_;
  const OfflineSettings settings_;
};

}  // namespace llmrt::server
