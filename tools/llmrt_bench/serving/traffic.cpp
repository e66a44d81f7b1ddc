#include "tools/llmrt_bench/serving/traffic.h"

#include <algorithm>
#include <cmath>

namespace llmrt::bench {
namespace {

double mean_log_uniform(uint32_t least, uint32_t most) {
  double sum = 0;
  for (uint32_t n = least; n <= most; ++n) sum += 1.0 / n;
  return (most - least + 1) / sum;
}

}  // namespace

double TrafficSpec::mean_tokens() const {
  return mean_log_uniform(prompt_min, prompt_max) + mean_log_uniform(output_min, output_max);
}

void Traffic::come(double per_s, Window window) {
  per_s_ = per_s;
  end_ns_ = window.to_ns;
  next_ns_ = window.from_ns + gap_ns();
}

TimeNs Traffic::gap_ns() {
  return static_cast<TimeNs>(-std::log(draws_.unit()) / per_s_ * 1e9);
}

Result<TimeNs> Traffic::submit_due(TimeNs now) {
  for (; next_ns_ <= now && next_ns_ < end_ns_; next_ns_ += gap_ns())
    if (Status status = submit(next_ns_); !status) return status.error();
  return next_ns_ < end_ns_ ? next_ns_ : kNever;
}

Status Traffic::keep_waiting(size_t count) {
  for (size_t waiting = num_waiting(); waiting < count; ++waiting)
    if (Status status = submit(0); !status) return status;
  return {};
}

Status Traffic::submit(TimeNs arrival_ns) {
  const uint32_t prompt_tokens = draws_.log_uniform(spec_.prompt_min, spec_.prompt_max);
  const uint32_t output_tokens = draws_.log_uniform(spec_.output_min, spec_.output_max);
  auto answer =
      drive_->submit(content_.tokens(prompt_tokens, spec_.vocab_size), output_tokens, spec_.request_class, arrival_ns);
  if (!answer && answer.error().code != ErrorCode::kOverloaded) return answer.error();
  if (answer) arrival_ns = (*answer)->arrival_ns;
  asked_.push_back({arrival_ns, {prompt_tokens, output_tokens}, answer ? *answer : nullptr});
  return {};
}

size_t Traffic::num_asked(Window window) const {
  return static_cast<size_t>(
      std::ranges::count_if(asked_, [&](const Asked& one) { return window.has(one.arrival_ns); }));
}

size_t Traffic::num_refused(Window window) const {
  return static_cast<size_t>(
      std::ranges::count_if(asked_, [&](const Asked& one) { return !one.answer && window.has(one.arrival_ns); }));
}

TokenCounts Traffic::asked(Window window) const {
  TokenCounts sum;
  for (const Asked& one : asked_) {
    if (!window.has(one.arrival_ns)) continue;
    sum.prompt += one.tokens.prompt;
    sum.output += one.tokens.output;
  }
  return sum;
}

TokenCounts Traffic::served(Window window) const {
  TokenCounts sum;
  for (const Asked& one : asked_) {
    if (!one.answer || one.answer->times_ns.empty()) continue;
    const std::vector<TimeNs>& times = one.answer->times_ns;
    if (window.has(times.front())) sum.prompt += one.tokens.prompt;
    sum.output += static_cast<uint64_t>(std::ranges::count_if(times, [&](TimeNs time) { return window.has(time); }));
  }
  return sum;
}

std::vector<double> Traffic::ttfts_ms(Window window, TimeNs now) const {
  std::vector<double> all;
  for (const Asked& one : asked_)
    if (one.answer && window.has(one.arrival_ns))
      all.push_back(one.answer->times_ns.empty() ? ms_between(one.arrival_ns, now) : one.answer->ttft_ms());
  return all;
}

size_t Traffic::num_waiting() const {
  return static_cast<size_t>(
      std::ranges::count_if(asked_, [](const Asked& one) { return one.answer && one.answer->times_ns.empty(); }));
}

size_t Traffic::num_finished() const {
  return static_cast<size_t>(
      std::ranges::count_if(asked_, [](const Asked& one) { return one.answer && one.answer->finished; }));
}

}  // namespace llmrt::bench
