#include "tools/llmrt_bench/serving/workload.h"

#include <cmath>
#include <numbers>

namespace llmrt::bench {

uint32_t Draws::log_uniform(uint32_t least, uint32_t most) {
  uint32_t number;
  do number = least + below(most - least + 1);
  while (below(number) >= least);  // kept with a probability of least / number
  return number;
}

uint32_t Draws::geometric(uint32_t mean, uint32_t most) {
  uint32_t trials = 1;
  while (trials < most && below(mean) != 0) ++trials;
  return trials;
}

std::vector<int32_t> Draws::tokens(uint32_t count, uint32_t vocab_size) {
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(below(vocab_size));
  return ids;
}

double Draws::unit() {
  constexpr uint32_t kParts = 1u << 31;
  return (below(kParts) + 1.0) / kParts;
}

double Draws::normal() {
  const double radius = std::sqrt(-2 * std::log(unit()));
  return radius * std::cos(2 * std::numbers::pi * unit());
}

std::vector<WorkItem> make_workload(const WorkloadSpec& spec, uint32_t vocab_size) {
  Draws lengths(spec.seed), content(~spec.seed);
  std::vector<std::vector<int32_t>> prefixes(spec.num_prefixes);
  for (auto& prefix : prefixes) prefix = content.tokens(spec.prefix_tokens, vocab_size);
  std::vector<WorkItem> items(spec.num_requests);
  for (uint32_t i = 0; i < spec.num_requests; ++i) {
    uint32_t own = lengths.log_uniform(spec.prompt_min, spec.prompt_max);
    if (spec.long_every > 0 && i % spec.long_every == spec.long_every - 1) own = spec.long_tokens;
    items[i].output_tokens = lengths.geometric(spec.output_mean, spec.output_max);
    if (!prefixes.empty()) items[i].prompt = prefixes[i % prefixes.size()];
    const std::vector<int32_t> ids = content.tokens(own, vocab_size);
    items[i].prompt.insert(items[i].prompt.end(), ids.begin(), ids.end());
  }
  return items;
}

}  // namespace llmrt::bench
