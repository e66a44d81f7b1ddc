// Seconds since 1970: now, and as "2026-11-30T03:16:17Z".
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <string>

#include <fmt/format.h>

namespace llmrt::server {

// Of the system's clock.
inline int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

inline std::string rfc3339(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  gmtime_r(&time, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace llmrt::server
