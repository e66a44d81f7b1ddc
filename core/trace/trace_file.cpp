#include "core/trace/trace_file.h"

#include <chrono>
#include <utility>

namespace llmrt {

Result<std::shared_ptr<TraceFile>> TraceFile::open(const std::string& path, TraceOrigin origin,
                                                   std::shared_ptr<Log> log) {
  Result<std::unique_ptr<LineFile>> file = LineFile::open(path, "request trace", std::move(log));
  if (!file) return file.error();
  return std::make_shared<TraceFile>(*std::move(file), std::move(origin));
}

void TraceFile::put(RequestTrace trace) {
  file_->put([origin = origin_, trace = std::move(trace)] {
    const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
    const int64_t now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(since_1970).count();
    return format_trace_line({.origin = *origin, .written_unix_ms = now_ms, .trace = trace});
  });
}

}  // namespace llmrt
