// Log lines of a program that runs long: one line an event, written by whoever sees it happen, to a log that is handed
// in (there is no global one). Counters and records of single requests are elsewhere (core/metrics).
//
// spdlog writes them; its headers stay in log.cpp, where they cost a compiler ten seconds once and not in every user.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <memory>
#include <ostream>
#include <string_view>
#include <utility>

#include "core/log/log_format.h"

namespace llmrt {

// Thread-safe. Arguments are formatted only for a line that is written.
class Log {
 public:
  virtual ~Log() = default;

  // What a line is about goes into its text; `fields` say it once more, for programs that read the log.
  template <typename... Args>
  void event(LogLevel level, LogFields fields, fmt::format_string<Args...> format, Args&&... args) {
    if (writes(level)) write(level, fmt::format(format, std::forward<Args>(args)...), fields);
  }
  template <typename... Args>
  void line(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
    event(level, {}, format, std::forward<Args>(args)...);
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
  virtual void write(LogLevel level, std::string_view text, LogFields fields) = 0;
};

// Lines of at least this level, to standard error or to a stream that outlives the log.
std::shared_ptr<Log> stderr_log(LogLevel level, LogFormat format = LogFormat::kText);
std::shared_ptr<Log> stream_log(std::ostream& stream, LogLevel level, LogFormat format = LogFormat::kText);
// Drops everything.
std::shared_ptr<Log> silent_log();

}  // namespace llmrt
