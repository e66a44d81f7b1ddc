// The paths that need no API key, whoever asks: written here once more, so that a new route is protected unless
// somebody means otherwise.
#pragma once

#include <string_view>

namespace llmrt::server {

inline bool is_open_path(std::string_view path) {
  for (const std::string_view open : {"/health", "/ready", "/live", "/version", "/api/version", "/"})
    if (path == open) return true;
  return false;
}

}  // namespace llmrt::server
