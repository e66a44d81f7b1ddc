#include "tools/llmrt_bench/load/load_progress.h"

#include <fmt/format.h>
#include <unistd.h>

namespace llmrt::bench {

LoadProgress::LoadProgress(std::string what, size_t num_requests, const Clock* clock)
    : what_(std::move(what)),
      num_requests_(num_requests),
      clock_(clock),
      begin_ns_(clock->now_ns()),
      drawn_ns_(begin_ns_),
      is_terminal_(isatty(STDERR_FILENO) == 1) {}

LoadProgress::~LoadProgress() {
  fmt::print(stderr, "{}{}\n", is_terminal_ ? "\r\x1b[K" : "", text(clock_->now_ns()));
}

void LoadProgress::update(const Outcome* outcome) {
  if (outcome) {
    ++num_over_;
    num_failed_ += outcome->failure.has_value();
  }
  const TimeNs now_ns = clock_->now_ns();
  if (ms_between(drawn_ns_, now_ns) < (is_terminal_ ? 200 : 10'000)) return;
  drawn_ns_ = now_ns;
  fmt::print(stderr, "{}{}{}", is_terminal_ ? "\r\x1b[K" : "", text(now_ns), is_terminal_ ? "" : "\n");
  std::fflush(stderr);
}

std::string LoadProgress::text(TimeNs now_ns) const {
  const double elapsed_s = ms_between(begin_ns_, now_ns) * 1e-3;
  std::string out = fmt::format("{}: {} of {} requests over, {} failed, {:.1f} s", what_, num_over_, num_requests_,
                                num_failed_, elapsed_s);
  if (num_over_ == num_requests_) return out;
  if (num_over_ == 0) return out + ", time left not known yet";
  const double left = static_cast<double>(num_requests_ - num_over_) / static_cast<double>(num_over_);
  return out + fmt::format(", about {:.0f} s left", elapsed_s * left);
}

}  // namespace llmrt::bench
