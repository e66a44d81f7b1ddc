// What a log line looks like. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace llmrt {

enum class LogLevel { kInfo, kWarning, kError, kOff };
const char* log_level_name(LogLevel level);  // "info", "warning", "error", "off"

enum class LogFormat {
  kText,  // 2026-11-21 10:04:05.123 info    message
  kJson,  // {"time":"2026-11-21T10:04:05.123Z","level":"info","message":"...", fields}
};

// A name of ours, in lower snake case, and a text from anywhere or a number. An empty text has no field.
struct LogField {
  LogField(std::string_view field, std::string_view value) : name(field), text(value) {}
  LogField(std::string_view field, uint64_t value) : name(field), number(value), is_number(true) {}

  std::string_view name, text;
  uint64_t number = 0;
  bool is_number = false;
};

// Of one line; a view, as an argument alone.
class LogFields : public std::span<const LogField> {
 public:
  LogFields() = default;
  LogFields(std::initializer_list<LogField> fields) : span(fields.begin(), fields.size()) {}
};

// Longer ones are cut, and end in "...".
inline constexpr size_t kLogMessageBytesMax = 8 << 10, kLogFieldBytesMax = 512;

// One line without its end, in UTC. In JSON it is printable and in UTF-8 whatever the texts are.
std::string format_log_line(LogFormat format, std::chrono::system_clock::time_point time, LogLevel level,
                            std::string_view text, LogFields fields = {});

}  // namespace llmrt
