// How long prompts and answers are, and when requests come: drawn from what an option says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "tools/llmrt_bench/load/work.h"
#include "tools/llmrt_bench/serving/workload.h"

namespace llmrt::bench {

// "128": all are. "lognormal:MEDIAN:SIGMA:MIN:MAX": exp(ln MEDIAN + SIGMA * normal), rounded, kept in MIN to MAX.
struct Lengths {
  double median = 1, sigma = 0;
  uint32_t min = 1, max = 1;

  uint32_t draw(Draws* draws) const;
};
Result<Lengths> parse_lengths(const std::string& option, const std::string& text);

// Gaps between requests, in units of their mean. "constant"; "poisson": exponential; "gamma:SHAPE": burstier than
// poisson below 1; "pareto:ALPHA": a heavy tail, of infinite variance up to 2; "burst:N": N at once, then N mean gaps.
struct ArrivalPattern {
  enum class Kind { kConstant, kPoisson, kGamma, kPareto, kBurst } kind = Kind::kPoisson;
  double parameter = 0;

  // When so many requests arrive, `per_s` of them a second on average. Ascending.
  std::vector<double> times_s(size_t count, double per_s, Draws* draws) const;
};
inline constexpr const char* kArrivalsForms = "constant, poisson, gamma:SHAPE, pareto:ALPHA or burst:N";
Result<ArrivalPattern> parse_arrivals(const std::string& option, const std::string& text);

// Requests made of words, without arrivals. No request's prompt begins with another's but by chance.
std::vector<LoadItem> make_work(size_t count, const Lengths& prompt, const Lengths& output, Draws* draws);

}  // namespace llmrt::bench
