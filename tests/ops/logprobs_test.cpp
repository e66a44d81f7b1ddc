// logprobs: the raw distribution of drawn and forced tokens and the best alternatives, in order, ties by lower id; the
// same of the distribution that is drawn from.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cmath>

#include "tests/ops/sampling_cases.h"

namespace llmrt::optest {

TEST_CASE("logprobs scores drawn and forced tokens and ranks the alternatives", "[logprobs]") {
  const uint32_t vocab = GENERATE(1u, 19u, 20u, 31u, 49152u, 151936u);
  auto rng = test_rng(fmt::format("logprobs {}", vocab));
  Suite suite;
  for (const std::string& shape : logits_shapes()) {
    std::vector<SampleRow> rows;
    for (uint32_t r = 0; r < 8; ++r) {
      SampleRow row{fmt::format("{} {}", shape, r), {}, random_logits(shape, vocab, rng), r};
      row.sampling.temperature = r % 2 ? 0.9f : 0.0f;
      row.sampling.top_k = r == 3 ? 5 : 0;
      row.sampling.seed_lo = static_cast<uint32_t>(rng());
      if (r != 2) row.flags |= kSampleLogprobs;
      if (r >= 5) {
        row.flags |= kSampleForced;
        row.forced_token = static_cast<int32_t>(r == 5 ? vocab - 1 : rng() % vocab);
      }
      rows.push_back(std::move(row));
    }
    suite.cases.push_back(
        sampling_case(fmt::format("logprobs V {} {}", vocab, shape), rows, {.bucket = 8, .logprobs = true}));
  }
  fit_suite(&suite);
  run(suite);
}

TEST_CASE("logprobs tells the best of what may be drawn", "[logprobs]") {
  const uint32_t vocab = GENERATE(1u, 19u, 300u, 49152u, 151936u);
  auto rng = test_rng(fmt::format("processed logprobs {}", vocab));
  Suite suite;
  for (const std::string& shape : logits_shapes()) {
    std::vector<SampleRow> rows;
    const auto add = [&](const char* name, auto change) {
      SampleRow row{fmt::format("{} {}", shape, name), {}, random_logits(shape, vocab, rng), 3};
      row.sampling.temperature = 0.7f;
      row.sampling.seed_lo = static_cast<uint32_t>(rng());
      row.flags = kSampleLogprobs | kSampleProcessed;
      change(row);
      rows.push_back(std::move(row));
    };
    add("all", [](SampleRow&) {});
    add("greedy", [](SampleRow& r) { r.sampling.temperature = 0; });
    add("top-k 5", [](SampleRow& r) { r.sampling.top_k = 5; });
    add("top-p", [](SampleRow& r) { r.sampling.top_p = 0.6f; });
    add("min-p", [](SampleRow& r) { r.sampling.min_p = 0.1f; });
    add("hot", [](SampleRow& r) { r.sampling.temperature = 3; });
    add("cold", [](SampleRow& r) { r.sampling.temperature = 1e-4f; });
    add("coldest", [](SampleRow& r) { r.sampling.temperature = 1e-6f; });
    add("raw beside them", [](SampleRow& r) { r.flags = kSampleLogprobs; });
    add("only the token", [](SampleRow& r) { r.flags = kSampleProcessed; });
    const auto best_first = [](const SampleRow& r) {
      return static_cast<int32_t>(std::max_element(r.logits.begin(), r.logits.end()) - r.logits.begin());
    };
    add("the best one banned", [&](SampleRow& r) {
      r.sampling.flags = kRowBias;
      if (r.logits.size() > 1) r.bias = {{best_first(r), -INFINITY}};
    });
    add("penalised", [&](SampleRow& r) {
      r.sampling.flags = kRowPenalties;
      r.sampling.presence_penalty = 1.5f;
      r.output_tokens = {static_cast<uint32_t>(best_first(r))};
    });
    add("all banned", [](SampleRow& r) {
      r.sampling.flags = kRowBias;
      for (size_t v = 0; v < std::min<size_t>(r.logits.size(), 300); ++v)
        r.bias.push_back({static_cast<int32_t>(v), -INFINITY});
    });
    suite.cases.push_back(
        sampling_case(fmt::format("processed logprobs V {} {}", vocab, shape), rows, {.bucket = 16, .logprobs = true}));
  }
  fit_suite(&suite);
  run(suite);
}

}  // namespace llmrt::optest
