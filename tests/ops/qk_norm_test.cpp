// qk_norm: each head of q and k on its own; v stays bit for bit.
#include <catch2/catch_test_macros.hpp>

#include "tests/ops/op_harness.h"

namespace llmrt::optest {

TEST_CASE("qk_norm scales heads of q and k and leaves v", "[qk_norm]") {
  auto rng = test_rng("qk_norm");
  Suite suite;
  struct Shape {
    uint32_t heads, kv_heads, dim;
  };
  for (auto [heads, kv_heads, dim] : {Shape{1, 1, 64}, {9, 3, 64}, {4, 2, 80}, {8, 2, 96}, {16, 8, 128}, {4, 1, 256}}) {
    const WeightId q_weight = suite.add_weight(Encoding::kF32, 1, dim, rng);
    const WeightId k_weight = suite.add_weight(Encoding::kF32, 1, dim, rng);
    const uint32_t columns = (heads + 2 * kv_heads) * dim;
    for (auto [rows, bucket] : {std::pair{0u, 1u}, {1u, 1u}, {5u, 8u}, {66u, 128u}}) {
      Case test_case;
      test_case.name = fmt::format("qk_norm heads {}/{} dim {} rows {} of {}", heads, kv_heads, dim, rows, bucket);
      Step step;
      if (rows > 0) step.add_row(0, 0, rows);
      step.set_bucket(bucket);
      const TensorId qkv = step.inout(Rows::kTokens, "qkv", columns, DType::kF32,
                                      random_normal(rng, size_t{rows} * columns), Tolerance::kElementwise);
      step.forward.ops = {QkNorm{qkv, q_weight, k_weight, heads, kv_heads, dim, 1e-6f}};
      test_case.steps = {std::move(step)};
      suite.cases.push_back(std::move(test_case));
    }
  }
  run(suite);
}

}  // namespace llmrt::optest
