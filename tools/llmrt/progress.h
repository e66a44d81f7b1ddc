// Progress of a long copy on standard error: a bar on a terminal, and one plain line at the end. A quiet one has the
// line alone, for whoever asks.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace llmrt::cli {

class ProgressBar {
 public:
  // `unit`: of what is counted; empty: bytes.
  ProgressBar(std::string what, bool quiet, std::string unit = "");
  void update(uint64_t done, uint64_t total);
  void finish();  // clears the bar, and prints the line
  std::string line() const;

 private:
  std::string total_text() const;

  std::string what_, unit_;
  bool quiet_, terminal_;
  uint64_t total_ = 0;
  std::chrono::steady_clock::time_point begin_, drawn_;
};

}  // namespace llmrt::cli
