#include "tools/llmrt/progress.h"

#include <cstdlib>

#include <unistd.h>

#include "tools/llmrt/program.h"

namespace llmrt::cli {

using std::chrono::steady_clock;

ProgressBar::ProgressBar(std::string what, bool quiet, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) == 1 && !std::getenv("NO_COLOR")),
      begin_(steady_clock::now()) {}

void ProgressBar::update(uint64_t done, uint64_t total) {
  total_ = total;
  const auto now = steady_clock::now();
  if (quiet_ || !terminal_ || total == 0 || (now - drawn_ < std::chrono::milliseconds(50) && done < total)) return;
  drawn_ = now;
  constexpr uint64_t kWidth = 40;
  const uint64_t filled = kWidth * done / total;
  fmt::print(stderr, "\r{} [{}{}] {:3d} % of {} ", what_, std::string(filled, '#'), std::string(kWidth - filled, '.'),
             100 * done / total, total_text());
  std::fflush(stderr);
}

std::string ProgressBar::total_text() const {
  return unit_.empty() ? bytes_text(total_) : fmt::format("{} {}", total_, unit_);
}

void ProgressBar::finish() {
  if (quiet_) return;
  if (terminal_) fmt::print(stderr, "\r\x1b[K");
  fmt::print(stderr, "{}\n", line());
}

std::string ProgressBar::line() const {
  const std::chrono::duration<double> elapsed = steady_clock::now() - begin_;
  return fmt::format("{}: {} in {:.2f} s", what_, total_text(), elapsed.count());
}

}  // namespace llmrt::cli
