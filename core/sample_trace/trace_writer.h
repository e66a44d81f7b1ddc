// Writes sample traces while an engine runs: the engine's thread only hands lines over, a thread of its own writes
// them.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/sample_trace/sample_trace.h"

namespace llmrt {

class TraceWriter : public std::enable_shared_from_this<TraceWriter> {
 public:
  // Creates the file, which only its owner may read, or empties it.
  static Result<std::shared_ptr<TraceWriter>> open(const std::string& path, const SampleTraceOrigin& origin);
  // Writes what it has been told.
  ~TraceWriter();

  // It was there before, and others than its owner may read it.
  bool others_may_read() const { return others_may_read_; }

  // To be called before the request is submitted, with its sink set: its events pass through the trace from then on.
  // Beam search draws nothing, and is not recorded. Any thread.
  void record(Request* request);

  // A whole line, from any thread; never waits for the disk.
  void add(std::string line);
  // Waits until all lines are in the file. What went wrong with the file, once: then later lines are dropped.
  Status flush();

 private:
  TraceWriter(std::FILE* file, bool others_may_read);
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string pending_;
  bool is_writing_ = false, is_over_ = false;
  std::string trouble_;
  const bool others_may_read_;
  std::FILE* file_;
  std::thread thread_;
};

}  // namespace llmrt
