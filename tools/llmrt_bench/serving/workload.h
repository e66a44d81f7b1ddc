// Seeded requests, the same on any machine: of a generator whose sequence the standard fixes (the distributions of
// <random> differ between libraries), and integers only, but for unit() and normal() and what is drawn with them.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace llmrt::bench {

class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed) {}

  // 0 to limit - 1; the rest of a division of 64 bits, so its bias is below 2^-32.
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
  // `least` to `most`, n with a probability of 1 / n beside the others. least >= 1.
  uint32_t log_uniform(uint32_t least, uint32_t most);
  // Trials until the first that succeeds, each with 1 / mean; `most` when it would be more.
  uint32_t geometric(uint32_t mean, uint32_t most);
  std::vector<int32_t> tokens(uint32_t count, uint32_t vocab_size);
  // (0, 1], in 2^31 steps.
  double unit();
  // Mean 0, variance 1.
  double normal();

 private:
  std::mt19937_64 random_;
};

struct WorkItem {
  std::vector<int32_t> prompt;
  uint32_t output_tokens = 1;
};

struct WorkloadSpec {
  uint32_t num_requests = 512;
  uint32_t prompt_min = 64, prompt_max = 1024;    // log-uniform
  uint32_t output_mean = 128, output_max = 1024;  // geometric
  uint64_t seed = 1;
  // Request i begins with prefix i % num_prefixes; what is drawn by prompt_min and prompt_max comes behind it.
  uint32_t num_prefixes = 0, prefix_tokens = 0;
  // The last of so many has a prompt of long_tokens instead (behind its prefix); 0 = none.
  uint32_t long_every = 0, long_tokens = 0;
};

// Lengths do not depend on the vocabulary.
std::vector<WorkItem> make_workload(const WorkloadSpec& spec, uint32_t vocab_size);

}  // namespace llmrt::bench
