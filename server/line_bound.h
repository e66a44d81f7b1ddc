// A bound on log lines that clients cause: a flood of them must not fill a disk. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

namespace llmrt::server {

class LineBound {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit LineBound(uint64_t lines_per_second) : lines_max_(lines_per_second) {}

  // Nothing: this line is left out. Else it may be written, and so many were left out since the last one was.
  std::optional<uint64_t> take(Time now = std::chrono::steady_clock::now()) {
    std::lock_guard lock(mutex_);
    if (now - begin_ >= std::chrono::seconds(1)) {
      begin_ = now;
      num_lines_ = 0;
    }
    if (num_lines_ >= lines_max_) {
      ++num_left_out_;
      return std::nullopt;
    }
    ++num_lines_;
    return std::exchange(num_left_out_, 0);
  }

 private:
  const uint64_t lines_max_;
  std::mutex mutex_;
  Time begin_;
  uint64_t num_lines_ = 0, num_left_out_ = 0;
};

}  // namespace llmrt::server
