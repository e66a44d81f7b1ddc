#include "core/log/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace llmrt {

std::shared_ptr<Log> stderr_log(LogLevel level) {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  sink->set_formatter(
      std::make_unique<spdlog::pattern_formatter>("%Y-%m-%d %H:%M:%S.%e %-7l %v", spdlog::pattern_time_type::utc));
  auto log = std::make_shared<Log>("llmrt", std::move(sink));
  log->set_level(level);
  return log;
}

std::shared_ptr<Log> silent_log() {
  return std::make_shared<Log>("llmrt", std::make_shared<spdlog::sinks::null_sink_mt>());
}

}  // namespace llmrt
