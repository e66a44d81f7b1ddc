// The workloads of the serving bench: bounds, means, and the same numbers for the same seed wherever it runs.
#include "tools/llmrt_bench/serving/workload.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>

using namespace llmrt::bench;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

constexpr uint32_t kVocab = 1000;

}  // namespace

TEST_CASE("lengths keep their bounds and have the means of their distributions") {
  WorkloadSpec spec;
  spec.num_requests = 20000;
  const auto items = make_workload(spec, kVocab);
  double outputs = 0, logs = 0;
  uint32_t num_longest = 0;
  size_t shortest = ~0ull, longest = 0;
  for (const WorkItem& item : items) {
    REQUIRE(item.prompt.size() >= spec.prompt_min);
    REQUIRE(item.prompt.size() <= spec.prompt_max);
    REQUIRE(item.output_tokens >= 1);
    REQUIRE(item.output_tokens <= spec.output_max);
    outputs += item.output_tokens;
    logs += std::log(static_cast<double>(item.prompt.size()));
    num_longest += item.output_tokens == spec.output_max;
    shortest = std::min(shortest, item.prompt.size());
    longest = std::max(longest, item.prompt.size());
  }
  const double n = spec.num_requests;
  // Standard error of the first: 128 / sqrt(20000) = 0.9; of the second: ln(16) / sqrt(12 * 20000) = 0.006.
  CHECK_THAT(outputs / n, WithinAbs(128, 4));
  CHECK_THAT(logs / n, WithinAbs((std::log(64) + std::log(1024)) / 2, 0.025));
  CHECK(shortest <= 66);
  CHECK(longest >= 1000);
  CHECK(num_longest < 40);  // (127 / 128)^1023 of them: 6.6
}

TEST_CASE("a short cap cuts the geometric draw, one of a mean of 1 is 1") {
  Draws draws(3);
  uint32_t num_cut = 0;
  for (int i = 0; i < 10000; ++i) {
    CHECK(draws.geometric(1, 50) == 1);
    num_cut += draws.geometric(128, 128) == 128;
  }
  CHECK_THAT(num_cut / 1e4, WithinAbs(std::pow(127 / 128.0, 127), 0.02));
}

TEST_CASE("the same seed gives the same requests, another one others, on any machine") {
  WorkloadSpec spec;
  const auto items = make_workload(spec, kVocab), again = make_workload(spec, kVocab);
  const auto other_vocab = make_workload(spec, 128256);
  spec.seed = 2;
  const auto others = make_workload(spec, kVocab);
  uint64_t tokens = 0, prompt_tokens = 0;
  size_t num_equal = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    REQUIRE(items[i].prompt == again[i].prompt);
    REQUIRE(items[i].output_tokens == again[i].output_tokens);
    REQUIRE(items[i].output_tokens == other_vocab[i].output_tokens);
    REQUIRE(items[i].prompt.size() == other_vocab[i].prompt.size());
    num_equal += items[i].prompt.size() == others[i].prompt.size();
    tokens += items[i].output_tokens;
    prompt_tokens += items[i].prompt.size();
  }
  CHECK(num_equal < 20);
  // Seed 1 by an independent program (mt19937_64 written out in Python).
  CHECK(tokens == 65054);
  CHECK(prompt_tokens == 170674);
  CHECK(items[0].prompt.size() == 114);
  CHECK(items[0].output_tokens == 291);
  CHECK(items[511].prompt.size() == 678);
  CHECK(items[511].output_tokens == 165);
}

TEST_CASE("prefixes are shared in turn, and one in so many prompts is long") {
  WorkloadSpec spec;
  spec.num_requests = 16;
  spec.prompt_max = 128;
  spec.num_prefixes = 3;
  spec.prefix_tokens = 50;
  spec.long_every = 8;
  spec.long_tokens = 500;
  const auto items = make_workload(spec, kVocab);
  for (size_t i = 0; i < items.size(); ++i) {
    const auto& prompt = items[i].prompt;
    if (i % 8 == 7) {
      CHECK(prompt.size() == 550);
    } else {
      CHECK(prompt.size() <= 178);
    }
    for (size_t j = 0; j < i; ++j)
      CHECK(std::equal(prompt.begin(), prompt.begin() + 50, items[j].prompt.begin()) == (i % 3 == j % 3));
  }
}
