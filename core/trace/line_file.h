// Lines of a file, made and written by a thread of its own: who has something to record only hands over. Bounded: what
// comes while kLinesWaitingMax wait is lost, and the log says how many were. Thread-safe.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/status.h"
#include "core/log/log.h"

namespace llmrt {

inline constexpr size_t kLinesWaitingMax = 16384;

class LineFile {
 public:
  // Appends to the file, which is made when it is not there. `what`: it, in the log. io_error when it cannot be opened.
  // A write that fails (a full disk) is logged once and ends the writing, not the program.
  static Result<std::unique_ptr<LineFile>> open(const std::string& path, std::string what, std::shared_ptr<Log> log);
  // Writes what waits.
  ~LineFile();

  // Called once, on the file's thread: gives the line, without its end.
  using Line = std::function<std::string()>;
  void put(Line line);

 private:
  LineFile(int file, std::string path, std::string what, std::shared_ptr<Log> log);
  void run();
  bool write_all(std::string_view text);

  const int file_;
  const std::string path_, what_;
  const std::shared_ptr<Log> log_;

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Line> waiting_;
  uint64_t num_lost_ = 0;  // since the log was told
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace llmrt
