// gather_rows: rows of the hidden tensor (what the forward list hands over) and of a plain one, repeated and in any
// order.
#include <catch2/catch_test_macros.hpp>

#include "tests/ops/op_harness.h"

namespace llmrt::optest {

TEST_CASE("gather_rows copies the rows that the records name", "[gather_rows]") {
  auto rng = test_rng("gather_rows");
  Suite suite;
  constexpr uint32_t kTokens = 40;
  for (Storage storage : {Storage::kHidden, Storage::kPinned}) {
    for (uint32_t columns : {576u, 100u}) {
      if (storage == Storage::kHidden && columns != 576) continue;  // a backend has one hidden tensor, of one width
      for (auto [rows, bucket] : {std::pair{0u, 1u}, {1u, 1u}, {5u, 8u}, {50u, 64u}}) {
        Case test_case;
        test_case.name = fmt::format("gather_rows columns {} rows {} of {}", columns, rows, bucket);
        Step step;
        for (uint32_t r = 0; r < rows; ++r)
          step.sample_inputs.records.push_back({0, r == 0 ? kTokens - 1 : static_cast<uint32_t>(rng() % kTokens), 0});
        step.sample.num_tokens = kTokens;
        const TensorId x = step.sample.add_tensor({"x", Rows::kTokens, columns, DType::kF32, storage});
        step.fills.push_back({x, random_normal(rng, size_t{kTokens} * columns)});
        const TensorId out = step.output(Rows::kSampled, "out", columns, DType::kF32, Tolerance::kExact);
        step.set_bucket(0, bucket);
        step.sample.ops = {GatherRows{x, out}};
        test_case.steps = {std::move(step)};
        suite.cases.push_back(std::move(test_case));
      }
    }
  }
  run(suite);
}

}  // namespace llmrt::optest
