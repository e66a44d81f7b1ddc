// One histogram for readers with different bounds: each gets the counts that one of its own would have.
#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <random>

#include "core/metrics/histogram.h"

using namespace llmrt;

TEST_CASE("what is counted has the bounds of every reader") {
  struct Case {
    std::vector<double> counted;
    std::vector<std::vector<double>> readers;
  };
  const Case cases[] = {
      {counted_latencies_s(),
       {latency_bounds_s(), vllm_first_token_bounds_s(), vllm_token_bounds_s(), vllm_request_bounds_s()}},
      {counted_lengths(), {length_bounds(), vllm_length_bounds(2048), vllm_length_bounds(kCountedContextMax)}}};
  std::mt19937_64 random(11);
  for (const Case& entry : cases) {
    Histogram counted(entry.counted);
    std::vector<Histogram> own(entry.readers.begin(), entry.readers.end());
    const auto add = [&](double value) {
      counted.add(value);
      for (Histogram& histogram : own) histogram.add(value);
    };
    for (const double bound : entry.counted) add(bound);  // belongs below
    for (int i = 0; i < 3000; ++i) add(std::exp(std::uniform_real_distribution<double>(-9, 18)(random)));
    for (size_t r = 0; r < own.size(); ++r) {
      uint64_t sum = 0;
      for (size_t i = 0; i < entry.readers[r].size(); ++i) {
        sum += own[r].counts()[i];
        CHECK(counted.count_up_to(entry.readers[r][i]) == sum);
      }
      CHECK(own[r].count() == counted.count());
    }
  }
}

TEST_CASE("lengths are bounded by 1, 2, 5, 10 ... up to the context") {
  CHECK(vllm_length_bounds(100) == std::vector<double>{1, 2, 5, 10, 20, 50, 100});
  CHECK(vllm_length_bounds(99) == std::vector<double>{1, 2, 5, 10, 20, 50});
  CHECK(vllm_length_bounds(0).empty());
}
