// gated_activation: all forms, each output dtype, odd widths, arguments far out.
#include <catch2/catch_test_macros.hpp>

#include "tests/ops/op_harness.h"

namespace llmrt::optest {

constexpr const char* kNames[] = {"silu", "gelu", "clamped silu", "squared relu"};  // by Activation

TEST_CASE("gated_activation multiplies the activated half with the other", "[gated_activation]") {
  auto rng = test_rng("gated_activation");
  Suite suite;
  for (Activation activation :
       {Activation::kSilu, Activation::kGelu, Activation::kClampedSilu, Activation::kSquaredRelu}) {
    const uint32_t halves = has_other_half(activation) ? 2 : 1;
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (uint32_t columns : {1u, 33u, 1536u, 4864u}) {
        for (auto [rows, bucket] : {std::pair{0u, 1u}, {1u, 1u}, {6u, 8u}, {66u, 128u}}) {
          Case test_case;
          test_case.variant = kNames[static_cast<size_t>(activation)];
          test_case.name = fmt::format("gated_activation {} columns {} rows {} of {} -> {}", test_case.variant, columns,
                                       rows, bucket, dtype_name(dtype));
          Step step;
          if (rows > 0) step.add_row(0, 0, rows);
          step.set_bucket(bucket);
          auto values = random_normal(rng, size_t{rows} * halves * columns, 3);
          if (rows > 4) {
            const size_t row = size_t{halves} * columns;
            values[0] = 100, values[row] = -100, values[2 * row] = 0;           // gates
            if (halves == 2) values[columns] = -90, values[row + columns] = 8;  // beyond the other half's clamps
          }
          const TensorId x = step.input(Rows::kTokens, "x", halves * columns, DType::kF32, values);
          const TensorId out = step.output(Rows::kTokens, "out", columns, dtype, Tolerance::kElementwise);
          step.last_output().scale = 1;
          step.forward.ops = {GatedActivation{x, activation, out}};
          test_case.steps = {std::move(step)};
          suite.cases.push_back(std::move(test_case));
        }
      }
    }
  }
  run(suite);
}

// More groups than Vulkan devices have to take in one direction.
TEST_CASE("gated_activation of more numbers than a grid is wide", "[gated_activation]") {
  auto rng = test_rng("gated_activation wide");
  Suite suite;
  constexpr uint32_t kRows = 61, kColumns = 17'301;
  Case test_case;
  test_case.variant = "silu";
  test_case.name = fmt::format("gated_activation silu columns {} rows {}", kColumns, kRows);
  Step step;
  step.add_row(0, 0, kRows);
  step.set_bucket(64);
  const TensorId x =
      step.input(Rows::kTokens, "x", 2 * kColumns, DType::kF32, random_normal(rng, size_t{kRows} * 2 * kColumns, 3));
  const TensorId out = step.output(Rows::kTokens, "out", kColumns, DType::kF32, Tolerance::kElementwise);
  step.last_output().scale = 1;
  step.forward.ops = {GatedActivation{x, Activation::kSilu, out}};
  test_case.steps = {std::move(step)};
  suite.cases.push_back(std::move(test_case));
  run(suite);
}

}  // namespace llmrt::optest
