#include "tools/llmrt_bench/record/time_left.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

namespace llmrt::bench {

using std::chrono::steady_clock;

TimeLeft::TimeLeft(double total)
    : total_(total), is_terminal_(isatty(STDERR_FILENO) == 1), begin_(steady_clock::now()), said_(begin_) {}

void TimeLeft::begin(const std::string& part) {
  const auto now = steady_clock::now();
  if (is_terminal_) {
    fmt::print(stderr, "\r\x1b[K{}", text(part));
    std::fflush(stderr);
    is_drawn_ = true;
  } else if (now - said_ >= std::chrono::seconds(10)) {
    said_ = now;
    fmt::print(stderr, "{}\n", text(part));
  }
}

void TimeLeft::clear() {
  if (is_drawn_) fmt::print(stderr, "\r\x1b[K");
  is_drawn_ = false;
}

std::string TimeLeft::text(const std::string& part) const {
  if (done_ <= 0) return fmt::format("[  0 %] {}", part);
  const double elapsed_s = std::chrono::duration<double>(steady_clock::now() - begin_).count();
  const long left_s = std::lround(elapsed_s / done_ * (total_ - done_));
  return fmt::format("[{:3.0f} %] {}; about {} left", 100 * done_ / total_, part,
                     left_s < 100 ? fmt::format("{} s", left_s) : fmt::format("{} min", (left_s + 30) / 60));
}

}  // namespace llmrt::bench
