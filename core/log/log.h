// Log lines of a program that runs long: one line an event, written by whoever sees it happen, to a log that is handed
// in (there is no global one). Counters and records of single requests are elsewhere (core/metrics).
#pragma once

#include <spdlog/logger.h>

#include <memory>
#include <string_view>

namespace llmrt {

using Log = spdlog::logger;  // thread-safe
using LogLevel = spdlog::level::level_enum;

// Lines of at least this level to standard error: "2026-11-21 10:04:05.123 info  ...", in UTC.
std::shared_ptr<Log> stderr_log(LogLevel level);
// Drops everything.
std::shared_ptr<Log> silent_log();

}  // namespace llmrt
