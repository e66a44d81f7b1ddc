#include "tools/llmrt_bench/ops/difference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace llmrt::bench {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMarginCertain = 1e-3;

}  // namespace

void Difference::add(double expected, double found) {
  if (std::isfinite(expected)) norm += expected * expected;
  if (expected == found || (std::isnan(expected) && std::isnan(found))) return;
  const double off = expected - found;
  difference += std::isfinite(off) ? off * off : kInfinity;
}

void Difference::add_wrong() {
  difference = kInfinity;
}

double Difference::relative() const {
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

Difference filter_difference(std::span<const std::byte> expected, std::span<const std::byte> found) {
  Difference sum;
  for (size_t at = 0; at < expected.size(); at += sizeof(FilterResult)) {
    FilterResult want, got;
    std::memcpy(&want, expected.data() + at, sizeof want);
    std::memcpy(&got, found.data() + at, sizeof got);
    sum.add(want.max_logit, got.max_logit);
    sum.add(want.log_sum, got.log_sum);
    if (want.support != got.support || want.flags != got.flags) sum.add_wrong();
  }
  return sum;
}

Difference draw_difference(std::span<const SampleResult> expected, std::span<const SampleResult> found) {
  Difference sum;
  for (size_t r = 0; r < expected.size(); ++r) {
    sum.add(expected[r].margin, found[r].margin);
    const bool is_same = expected[r].token == found[r].token && expected[r].flags == found[r].flags;
    if (!is_same && expected[r].margin > kMarginCertain) sum.add_wrong();
  }
  // A margin may be next to nothing; the noise that it comes from is about 1.
  sum.norm = std::max(sum.norm, static_cast<double>(expected.size()));
  return sum;
}

Difference logprobs_difference(const StepOutput& expected, const StepOutput& found) {
  Difference sum;
  for (size_t r = 0; r < expected.results.size(); ++r) {
    if (expected.results[r].token == found.results[r].token)
      sum.add(expected.results[r].logprob, found.results[r].logprob);
    for (uint32_t i = 0; i < kLogprobsMax; ++i) {
      const LogprobRow::Entry &want = expected.logprobs[r].entries[i], &got = found.logprobs[r].entries[i];
      sum.add(want.logprob, got.logprob);
      if (want.token != got.token) sum.add_wrong();
    }
  }
  return sum;
}

}  // namespace llmrt::bench
