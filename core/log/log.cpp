#include "core/log/log.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace llmrt {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      break;
  }
  return spdlog::level::off;
}

class SpdLog final : public Log {
 public:
  SpdLog(spdlog::sink_ptr sink, LogLevel level, LogFormat format) : format_(format), logger_("llmrt", std::move(sink)) {
    logger_.set_formatter(std::make_unique<spdlog::pattern_formatter>("%v"));
    logger_.set_level(spdlog_level(level));
    logger_.flush_on(spdlog::level::trace);
  }

 private:
  bool writes(LogLevel level) const override { return logger_.should_log(spdlog_level(level)); }
  void write(LogLevel level, std::string_view text, LogFields fields) override {
    const std::string line = format_log_line(format_, std::chrono::system_clock::now(), level, text, fields);
    logger_.log(spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
  }

  const LogFormat format_;
  spdlog::logger logger_;
};

class SilentLog final : public Log {
  bool writes(LogLevel) const override { return false; }
  void write(LogLevel, std::string_view, LogFields) override {}
};

}  // namespace

std::shared_ptr<Log> stderr_log(LogLevel level, LogFormat format) {
  return std::make_shared<SpdLog>(std::make_shared<spdlog::sinks::stderr_sink_mt>(), level, format);
}

std::shared_ptr<Log> stream_log(std::ostream& stream, LogLevel level, LogFormat format) {
  return std::make_shared<SpdLog>(std::make_shared<spdlog::sinks::ostream_sink_mt>(stream), level, format);
}

std::shared_ptr<Log> silent_log() {
  return std::make_shared<SilentLog>();
}

}  // namespace llmrt
