// gated_norm: either order of gate and norm, groups of odd widths, weights of a group and of a row, each output dtype.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>

#include "tests/ops/op_harness.h"

namespace llmrt::optest {
namespace {

struct NormShape {
  uint32_t groups, group_columns;
  bool gate_first, shared_weight;
};

Case norm_case_of(const NormShape& shape, WeightId weight, uint32_t rows, uint32_t bucket, uint32_t gate_first_column,
                  DType out_dtype, double deviation, std::mt19937_64& rng) {
  Case test_case;
  const uint32_t columns = shape.groups * shape.group_columns, wide = columns + gate_first_column;
  test_case.variant = dtype_name(out_dtype);
  test_case.name = fmt::format("gated_norm {} x {} gate {}{} rows {} of {} -> {} deviation {}", shape.groups,
                               shape.group_columns, shape.gate_first ? "first" : "behind",
                               shape.shared_weight ? " one weight" : "", rows, bucket, test_case.variant, deviation);
  Step& step = test_case.steps.emplace_back();
  step.set_rows(Rows::kTokens, rows, bucket);
  std::vector<double> gates = random_normal(rng, size_t{rows} * wide, 2);
  for (uint32_t r = 0; r < rows; ++r) std::fill_n(gates.begin() + r * wide, gate_first_column, NAN);
  GatedNorm op{};
  op.x = step.input(Rows::kTokens, "x", columns, DType::kF32, random_normal(rng, size_t{rows} * columns, deviation));
  op.gate = {step.input(Rows::kTokens, "gate", wide, DType::kF32, std::move(gates)), gate_first_column};
  op.weight = weight;
  op.group_columns = shape.group_columns;
  op.eps = 1e-5f;
  op.gate_first = shape.gate_first;
  op.out = step.output(Rows::kTokens, "out", columns, out_dtype, Tolerance::kElementwise);
  step.forward.ops = {op};
  return test_case;
}

}  // namespace

TEST_CASE("gated_norm normalises each group of a row, before its gate or behind it", "[gated_norm][recurrent]") {
  auto rng = test_rng("gated_norm");
  Suite suite;
  for (const bool gate_first : {false, true}) {
    for (const auto& [groups, columns] :
         {std::pair{1u, 1u}, {3u, 7u}, {4u, 128u}, {2u, 510u}, {1u, 4096u}, {8u, 64u}}) {
      const NormShape shape{groups, columns, gate_first, groups != 4};
      const WeightId weight =
          suite.add_weight(Encoding::kF32, 1, shape.shared_weight ? columns : groups * columns, rng);
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
        for (const auto& [rows, bucket] : {std::pair{0u, 1u}, {1u, 1u}, {7u, 8u}, {65u, 80u}})
          suite.cases.push_back(norm_case_of(shape, weight, rows, bucket, rows == 7 ? 5 : 0, dtype, 1, rng));
      suite.cases.push_back(norm_case_of(shape, weight, 3, 4, 0, DType::kF32, 1e3, rng));
    }
  }
  run(suite);
}

TEST_CASE("gated_norm by hand", "[gated_norm][recurrent]") {
  Suite suite;
  const WeightId weight = suite.add_f32({2, 3});
  for (const bool gate_first : {false, true}) {
    auto rng = test_rng("gated_norm by hand");
    Case test_case = norm_case_of({2, 2, gate_first, true}, weight, 1, 1, 0, DType::kF32, 1, rng);
    test_case.steps[0].fills = {{std::get<GatedNorm>(test_case.steps[0].forward.ops[0]).x, {3, 4, 0, 2}},
                                {std::get<GatedNorm>(test_case.steps[0].forward.ops[0]).gate.tensor, {0, 1, -1, 2}}};
    suite.cases = {test_case};
    const Outcome outcome = reference_outcome(suite, test_case);
    float found[4];
    std::memcpy(found, outcome.tensors[0].at(test_case.steps[0].outputs[0].tensor).data(), sizeof(found));
    const double one = 1 / (1 + std::exp(-1)), two = 2 / (1 + std::exp(-2));
    // The roots of the means: sqrt(25 / 2), sqrt(4 / 2), and with the gate first those of (0, 4 one), (0, 2 two).
    const double behind[] = {0, 3 * 4 / std::sqrt(12.5) * one, 0, 3 * std::sqrt(2) * two};
    const double first[] = {0, 3 * std::sqrt(2), 0, 3 * std::sqrt(2)};
    for (int i = 0; i < 4; ++i)
      CHECK(std::abs(static_cast<double>(found[i]) - (gate_first ? first : behind)[i]) < 1e-4);
  }
}

}  // namespace llmrt::optest
