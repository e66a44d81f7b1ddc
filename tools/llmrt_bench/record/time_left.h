// How far a long run is and how long it will take, on standard error: one line that is written over on a terminal, a
// line every ten seconds otherwise.
#pragma once

#include <chrono>
#include <string>

namespace llmrt::bench {

class TimeLeft {
 public:
  // `total`: of the weights of all parts, in any unit that grows with their time.
  explicit TimeLeft(double total);
  ~TimeLeft() { clear(); }
  TimeLeft(const TimeLeft&) = delete;
  TimeLeft& operator=(const TimeLeft&) = delete;

  void begin(const std::string& part);
  void done(double weight) { done_ += weight; }
  // Before anything else is printed to a terminal.
  void clear();

 private:
  std::string text(const std::string& part) const;

  double total_, done_ = 0;
  bool is_terminal_, is_drawn_ = false;
  std::chrono::steady_clock::time_point begin_, said_;
};

}  // namespace llmrt::bench
