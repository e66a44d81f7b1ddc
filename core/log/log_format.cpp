#include "core/log/log_format.h"

#include <fmt/format.h>

#include <ctime>
#include <iterator>

#include "core/base/utf8.h"

namespace llmrt {
namespace {

// No character is cut in two.
std::string_view cut(std::string_view text, size_t bytes_max, bool* is_cut) {
  *is_cut = text.size() > bytes_max;
  if (!*is_cut) return text;
  size_t size = bytes_max;
  while (size > bytes_max - 3 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  return text.substr(0, size);
}

// Control characters are escaped, those of Unicode too: some terminals obey them.
void append_string(std::string& out, std::string_view text, size_t bytes_max) {
  bool is_cut = false;
  text = cut(text, bytes_max, &is_cut);
  out += '"';
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Step step = decode_utf8(text, pos);
    pos += step.num_bytes;
    const char32_t c = step.state == Utf8State::kValid ? step.code_point : kReplacementCharacter;
    if (c == '"' || c == '\\')
      out += {'\\', static_cast<char>(c)};
    else if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029)
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint32_t>(c));
    else
      append_utf8(out, c);
  }
  out += is_cut ? "...\"" : "\"";
}

}  // namespace

const char* log_level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
    case LogLevel::kOff:
      break;
  }
  return "off";
}

std::string format_log_line(LogFormat format, std::chrono::system_clock::time_point time, LogLevel level,
                            std::string_view text, LogFields fields) {
  const auto at = std::chrono::floor<std::chrono::milliseconds>(time);
  const auto second = std::chrono::floor<std::chrono::seconds>(at);
  const std::time_t unix_s = std::chrono::system_clock::to_time_t(second);
  std::tm utc = {};
  gmtime_r(&unix_s, &utc);
  const bool is_json = format == LogFormat::kJson;
  const std::string when =
      fmt::format("{:04}-{:02}-{:02}{}{:02}:{:02}:{:02}.{:03}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                  is_json ? 'T' : ' ', utc.tm_hour, utc.tm_min, utc.tm_sec, (at - second).count());
  if (!is_json) return fmt::format("{} {:<7} {}", when, log_level_name(level), text);
  std::string out = fmt::format(R"({{"time":"{}Z","level":"{}","message":)", when, log_level_name(level));
  append_string(out, text, kLogMessageBytesMax);
  for (const LogField& field : fields) {
    if (!field.is_number && field.text.empty()) continue;
    out += ',';
    append_string(out, field.name, kLogFieldBytesMax);
    out += ':';
    if (field.is_number)
      out += fmt::format_int(field.number).str();
    else
      append_string(out, field.text, kLogFieldBytesMax);
  }
  return out + '}';
}

}  // namespace llmrt
