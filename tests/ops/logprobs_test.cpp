// logprobs: the raw distribution of drawn and forced tokens and the best alternatives, in order, ties by lower id.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

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

}  // namespace llmrt::optest
