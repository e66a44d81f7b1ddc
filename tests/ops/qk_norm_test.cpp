// qk_norm: each head of q and k on its own; v stays bit for bit, unless it has a weight. joined_qk_norm: q as a whole,
// k as a whole.
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

TEST_CASE("qk_norm may scale v too, and q alone", "[qk_norm]") {
  auto rng = test_rng("v_norm");
  Suite suite;
  struct Shape {
    uint32_t heads, kv_heads, dim;
    bool has_v_norm;
  };
  for (auto [heads, kv_heads, dim, has_v_norm] :
       {Shape{9, 3, 64, true}, {4, 2, 80, true}, {16, 8, 128, true}, {4, 0, 64, false}, {8, 0, 128, false}}) {
    const WeightId q_weight = suite.add_weight(Encoding::kF32, 1, dim, rng);
    const WeightId k_weight = suite.add_weight(Encoding::kF32, 1, dim, rng);
    const WeightId v_weight = suite.add_f32(std::vector<float>(dim, 1.0f));
    const uint32_t columns = (heads + 2 * kv_heads) * dim;
    for (auto [rows, bucket] : {std::pair{1u, 1u}, {66u, 128u}}) {
      Case test_case;
      test_case.name = fmt::format("qk_norm with v heads {}/{} dim {} rows {}", heads, kv_heads, dim, rows);
      Step step;
      step.add_row(0, 0, rows);
      step.set_bucket(bucket);
      const TensorId qkv = step.inout(Rows::kTokens, "qkv", columns, DType::kF32,
                                      random_normal(rng, size_t{rows} * columns, 3), Tolerance::kElementwise);
      step.forward.ops = {QkNorm{qkv, q_weight, k_weight, heads, kv_heads, dim, 1e-6f, has_v_norm ? v_weight : -1}};
      test_case.steps = {std::move(step)};
      suite.cases.push_back(std::move(test_case));
    }
  }
  run(suite);
}

TEST_CASE("joined_qk_norm scales q as a whole and k as a whole", "[joined_qk_norm]") {
  auto rng = test_rng("joined_qk_norm");
  Suite suite;
  struct Shape {
    uint32_t heads, kv_heads, dim;
  };
  for (auto [heads, kv_heads, dim] : {Shape{1, 1, 64}, {9, 3, 64}, {4, 2, 80}, {16, 8, 128}, {3, 0, 128}}) {
    const WeightId q_weight = suite.add_weight(Encoding::kF32, 1, heads * dim, rng);
    const WeightId k_weight = suite.add_weight(Encoding::kF32, 1, std::max(kv_heads, 1u) * dim, rng);
    const uint32_t columns = (heads + 2 * kv_heads) * dim;
    for (auto [rows, bucket] : {std::pair{0u, 1u}, {1u, 1u}, {66u, 128u}}) {
      Case test_case;
      test_case.name = fmt::format("joined_qk_norm heads {}/{} dim {} rows {}", heads, kv_heads, dim, rows);
      Step step;
      if (rows > 0) step.add_row(0, 0, rows);
      step.set_bucket(bucket);
      // Heads of other sizes: a norm by head would make them alike.
      std::vector<double> numbers = random_normal(rng, size_t{rows} * columns);
      for (size_t i = 0; i < numbers.size(); ++i) numbers[i] *= 1 + i % columns / dim;
      const TensorId qkv =
          step.inout(Rows::kTokens, "qkv", columns, DType::kF32, std::move(numbers), Tolerance::kElementwise);
      step.forward.ops = {JoinedQkNorm{qkv, q_weight, k_weight, heads, kv_heads, dim, 1e-6f}};
      test_case.steps = {std::move(step)};
      suite.cases.push_back(std::move(test_case));
    }
  }
  run(suite);
}

}  // namespace llmrt::optest
