// What /metrics tells of keys. Plain values; names of keys come from the operator's file, never from clients.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace llmrt::server {

enum class KeyLimit { kRequests, kTokens, kConcurrent };
inline constexpr std::array<const char*, 3> kKeyLimits = {"requests", "tokens", "concurrent"};

struct KeyFigures {
  std::string name;
  uint64_t requests = 0, prompt_tokens = 0, generated_tokens = 0;
  std::array<uint64_t, kKeyLimits.size()> limited = {};  // requests refused, by KeyLimit
  uint64_t running = 0;
};

struct AccessFigures {
  std::vector<KeyFigures> keys;     // by name
  uint64_t missing = 0, wrong = 0;  // requests refused for the want of a key, or of the right one
  uint64_t reloads = 0, reload_failures = 0;
};

}  // namespace llmrt::server
