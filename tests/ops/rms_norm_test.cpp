// rms_norm: with and without a residual, each output dtype, odd widths, rows of zeros, large and tiny numbers.
#include <catch2/catch_test_macros.hpp>

#include "tests/ops/op_harness.h"

namespace llmrt::optest {
namespace {

Case norm_case(WeightId weight, uint32_t columns, uint32_t rows, uint32_t bucket, DType out_dtype, bool residual,
               Rows kind, double deviation, std::mt19937_64& rng) {
  Case test_case;
  test_case.variant = dtype_name(out_dtype);
  test_case.name = fmt::format("rms_norm columns {} rows {} of {} -> {} residual {} deviation {}", columns, rows,
                               bucket, test_case.variant, residual, deviation);
  Step step;
  if (kind == Rows::kTokens && rows > 0) step.add_row(0, 0, rows);
  if (kind == Rows::kSampled)
    for (uint32_t r = 0; r < rows; ++r) step.sample_inputs.records.push_back({0, 0, 0});
  if (kind == Rows::kTokens)
    step.set_bucket(bucket);
  else
    step.set_bucket(0, bucket);
  auto values = random_normal(rng, size_t{rows} * columns, deviation);
  if (rows > 2) std::fill_n(values.begin() + columns, columns, 0.0);
  RmsNorm op{0, kNoTensor, weight, 1e-5f, 0};
  if (residual) {
    op.x = step.inout(kind, "x", columns, DType::kF32, values, Tolerance::kElementwise);
    op.delta = step.input(kind, "delta", columns, DType::kF32, random_normal(rng, values.size(), deviation));
  } else {
    op.x = step.input(kind, "x", columns, DType::kF32, values);
  }
  op.out = step.output(kind, "out", columns, out_dtype, Tolerance::kElementwise);
  (kind == Rows::kTokens ? step.forward : step.sample).ops = {op};
  test_case.steps = {std::move(step)};
  return test_case;
}

}  // namespace

TEST_CASE("rms_norm adds the residual and scales each row", "[rms_norm]") {
  auto rng = test_rng("rms_norm");
  Suite suite;
  for (uint32_t columns : {1u, 31u, 64u, 576u, 896u, 4096u, 5000u}) {
    const WeightId weight = suite.add_weight(Encoding::kF32, 1, columns, rng);
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
      for (bool residual : {false, true})
        for (auto [rows, bucket] : {std::pair{0u, 1u}, {1u, 1u}, {7u, 8u}, {65u, 128u}})
          suite.cases.push_back(norm_case(weight, columns, rows, bucket, dtype, residual, Rows::kTokens, 1, rng));
    suite.cases.push_back(norm_case(weight, columns, 5, 8, DType::kF32, true, Rows::kTokens, 1e-4, rng));
    suite.cases.push_back(norm_case(weight, columns, 5, 8, DType::kF32, false, Rows::kTokens, 1e4, rng));
    suite.cases.push_back(norm_case(weight, columns, 3, 4, DType::kF32, false, Rows::kSampled, 1, rng));
  }
  run(suite);
}

}  // namespace llmrt::optest
