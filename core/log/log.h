// Log lines of a program that runs long: one line an event, written by whoever sees it happen, to a log that is handed
// in (there is no global one). Counters and records of single requests are elsewhere (core/metrics).
//
// spdlog writes them; its headers stay in log.cpp, where they cost a compiler ten seconds once and not in every user.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <ostream>
#include <string_view>
#include <utility>

namespace llmrt {

enum class LogLevel { kInfo, kWarning, kError, kOff };

// Thread-safe. Arguments are formatted only for a line that is written.
class Log {
 public:
  virtual ~Log() = default;

  template <typename... Args>
  void line(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
    if (writes(level)) write(level, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) {
    line(LogLevel::kInfo, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) {
    line(LogLevel::kWarning, format, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) {
    line(LogLevel::kError, format, std::forward<Args>(args)...);
  }

 private:
  virtual bool writes(LogLevel level) const = 0;
  virtual void write(LogLevel level, std::string_view text) = 0;
};

// Lines of at least this level, "2026-11-21 10:04:05.123 info    ..." in UTC: to standard error, or to a stream that
// outlives the log.
std::shared_ptr<Log> stderr_log(LogLevel level);
std::shared_ptr<Log> stream_log(std::ostream& stream, LogLevel level);
// Drops everything.
std::shared_ptr<Log> silent_log();

}  // namespace llmrt
