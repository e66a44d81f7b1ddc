// embed: every encoding of the table, first and last token, repeated tokens.
#include <catch2/catch_test_macros.hpp>

#include "tests/ops/op_harness.h"

namespace llmrt::optest {

TEST_CASE("embed reads rows of every encoding", "[embed]") {
  auto rng = test_rng("embed");
  constexpr uint32_t kVocab = 301;
  Suite suite;
  suite.vocab_size = kVocab;
  for (Encoding encoding : all_encodings()) {
    for (uint32_t columns : {256u, 576u, 2048u}) {
      if (columns % geometry(encoding).elements_block != 0) continue;
      const WeightId weight = suite.add_weight(encoding, kVocab, columns, rng);
      for (auto [rows, bucket] : {std::pair{0u, 4u}, {1u, 1u}, {5u, 8u}, {70u, 128u}}) {
        Case test_case;
        test_case.variant = encoding_name(encoding);
        test_case.name = fmt::format("embed {} columns {} rows {} of {}", test_case.variant, columns, rows, bucket);
        Step step;
        if (rows > 0) step.add_row(0, 0, rows);
        step.set_bucket(bucket);
        std::vector<double> tokens(rows);
        for (double& token : tokens) token = static_cast<double>(rng() % kVocab);
        if (rows > 1) tokens[0] = 0, tokens[1] = kVocab - 1;
        const TensorId ids = step.input(Rows::kTokens, "tokens", 1, DType::kI32, tokens);
        const TensorId out = step.output(Rows::kTokens, "out", columns, DType::kF32, Tolerance::kElementwise);
        step.forward.ops = {Embed{ids, weight, out}};
        test_case.steps = {std::move(step)};
        suite.cases.push_back(std::move(test_case));
      }
    }
  }
  run(suite);
}

}  // namespace llmrt::optest
