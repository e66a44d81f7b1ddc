// add, scale, soft_cap and sigmoid_gate.
#include <catch2/catch_test_macros.hpp>

#include "tests/ops/op_harness.h"

namespace llmrt::optest {

TEST_CASE("add, scale, soft_cap and sigmoid_gate compute each number once", "[add][scale][soft_cap][sigmoid_gate]") {
  auto rng = test_rng("add");
  Suite suite;
  for (uint32_t columns : {1u, 37u, 576u, 4096u}) {
    for (auto [rows, bucket] : {std::pair{0u, 1u}, {1u, 1u}, {7u, 8u}, {65u, 128u}}) {
      Case test_case;
      test_case.name =
          fmt::format("add, scale, soft_cap, sigmoid_gate columns {} rows {} of {}", columns, rows, bucket);
      Step step;
      if (rows > 0) step.add_row(0, 0, rows);
      step.set_bucket(bucket);
      const size_t count = size_t{rows} * columns;
      const TensorId a = step.input(Rows::kTokens, "a", columns, DType::kF32, random_normal(rng, count));
      const TensorId b = step.input(Rows::kTokens, "b", columns, DType::kF32, random_normal(rng, count));
      const TensorId sum = step.output(Rows::kTokens, "sum", columns, DType::kF32, Tolerance::kElementwise);
      const TensorId capped = step.output(Rows::kTokens, "capped", columns, DType::kF32, Tolerance::kElementwise);
      step.forward.ops = {Add{a, b, sum}, SoftCap{a, 1.5f, capped}};
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        const auto output = [&](const char* what) {
          return step.output(Rows::kTokens, fmt::format("{}_{}", what, dtype_name(dtype)), columns, dtype,
                             Tolerance::kElementwise);
        };
        step.forward.ops.emplace_back(Scale{a, 0.7f, output("scaled")});
        step.forward.ops.emplace_back(SigmoidGate{a, b, output("gated")});
      }
      test_case.steps = {std::move(step)};
      suite.cases.push_back(std::move(test_case));
    }
  }
  run(suite);
}

// Far beyond the cap and near 0, in rows of the sample list, where logits are.
TEST_CASE("soft_cap and scale take rows of logits of any size", "[scale][soft_cap][sigmoid_gate]") {
  auto rng = test_rng("soft_cap");
  Suite suite;
  suite.vocab_size = 515;
  for (const double size : {1e-3, 30.0, 1e4, 1e30}) {
    Case test_case;
    test_case.name = fmt::format("soft_cap of logits of {}", size);
    Step step;
    OpList& list = step.set_rows(Rows::kSampled, 3, 4);
    const TensorId x = step.input_in(list, Rows::kSampled, "x", 515, DType::kF32, random_normal(rng, 3 * 515, size));
    const TensorId scaled = step.output_in(list, Rows::kSampled, "scaled", 515, DType::kF32, Tolerance::kElementwise);
    const TensorId capped = step.output_in(list, Rows::kSampled, "capped", 515, DType::kF32, Tolerance::kElementwise);
    const TensorId gated = step.output_in(list, Rows::kSampled, "gated", 515, DType::kF32, Tolerance::kElementwise);
    list.ops = {Scale{x, 0.0625f, scaled}, SoftCap{x, 30, capped}, SigmoidGate{x, x, gated}};
    test_case.steps = {std::move(step)};
    suite.cases.push_back(std::move(test_case));
  }
  run(suite);
}

}  // namespace llmrt::optest
