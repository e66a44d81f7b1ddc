// Records as lines of a file, written by a thread of its own: the engine only hands over. Bounded: what comes while
// kTraceWaitingMax records wait is lost, and the log says how many were.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/log/log.h"
#include "core/trace/trace_line.h"

namespace llmrt {

inline constexpr size_t kTraceWaitingMax = 16384;

class TraceFile final : public TraceSink {
 public:
  // Appends to the file, which is made when it is not there. io_error when it cannot be opened. A write that fails
  // (a full disk) is logged once and ends the writing, not the engine.
  static Result<std::shared_ptr<TraceFile>> open(const std::string& path, TraceOrigin origin, std::shared_ptr<Log> log);
  // Writes what waits.
  ~TraceFile() override;

  void put(RequestTrace trace) override;

 private:
  TraceFile(int file, std::string path, TraceOrigin origin, std::shared_ptr<Log> log);
  void run();
  bool write_all(std::string_view text);

  const int file_;
  const std::string path_;
  const TraceOrigin origin_;
  const std::shared_ptr<Log> log_;

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<RequestTrace> waiting_;
  uint64_t num_lost_ = 0;  // since the log was told
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace llmrt
