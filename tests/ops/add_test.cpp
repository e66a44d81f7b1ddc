// add and scale: one rounding each.
#include <catch2/catch_test_macros.hpp>

#include "tests/ops/op_harness.h"

namespace llmrt::optest {

TEST_CASE("add and scale compute each number once", "[add][scale]") {
  auto rng = test_rng("add");
  Suite suite;
  for (uint32_t columns : {1u, 37u, 576u, 4096u}) {
    for (auto [rows, bucket] : {std::pair{0u, 1u}, {1u, 1u}, {7u, 8u}, {65u, 128u}}) {
      Case test_case;
      test_case.name = fmt::format("add, scale columns {} rows {} of {}", columns, rows, bucket);
      Step step;
      if (rows > 0) step.add_row(0, 0, rows);
      step.set_bucket(bucket);
      const size_t count = size_t{rows} * columns;
      const TensorId a = step.input(Rows::kTokens, "a", columns, DType::kF32, random_normal(rng, count));
      const TensorId b = step.input(Rows::kTokens, "b", columns, DType::kF32, random_normal(rng, count));
      const TensorId sum = step.output(Rows::kTokens, "sum", columns, DType::kF32, Tolerance::kElementwise);
      const TensorId scaled = step.output(Rows::kTokens, "scaled", columns, DType::kF32, Tolerance::kElementwise);
      step.forward.ops = {Add{a, b, sum}, Scale{a, 0.7f, scaled}};
      test_case.steps = {std::move(step)};
      suite.cases.push_back(std::move(test_case));
    }
  }
  run(suite);
}

}  // namespace llmrt::optest
