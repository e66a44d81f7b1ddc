// kv_write: each KV dtype and block size, scattered slots, tokens that go nowhere; nothing else in the pool changes.
#include <catch2/catch_test_macros.hpp>

#include "tests/ops/op_harness.h"

namespace llmrt::optest {
namespace {

// Of an fp8-tensor pool: keys saturate now and then, values reach down to the subnormal numbers.
KvTensorScales tensor_scales(KvDType dtype, double deviation) {
  if (dtype != KvDType::kF8Tensor) return {};
  return {static_cast<float>(deviation * 3 / 448), static_cast<float>(deviation * 4)};
}

Case write_case(const KvGroup& group, uint32_t heads, uint32_t rows, uint32_t bucket, double deviation,
                std::mt19937_64& rng) {
  const uint32_t columns = (heads + 2 * group.num_kv_heads) * group.head_dim;
  Case test_case;
  test_case.variant = kv_dtype_name(group.dtype);
  test_case.name = fmt::format("kv_write {} kv_heads {} dim {} block {} rows {} of {} deviation {}", test_case.variant,
                               group.num_kv_heads, group.head_dim, group.block_tokens, rows, bucket, deviation);
  test_case.groups = {group};
  test_case.kv = {random_kv(group, rng)};
  Step step;
  if (rows > 0) step.add_row(0, 0, rows);
  step.set_bucket(bucket);
  const auto places = random_blocks(group.num_blocks * group.block_tokens, rows, rng);
  std::vector<double> kv_slots(places.begin(), places.end());
  if (rows > 2) kv_slots[2] = -1;
  auto values = random_normal(rng, size_t{rows} * columns, deviation);
  if (rows > 3) std::fill_n(values.begin() + 3 * columns, columns, 0.0);  // a vector of zeros has scale 0
  const TensorId qkv = step.input(Rows::kTokens, "qkv", columns, DType::kF32, values);
  const TensorId slots = step.input(Rows::kTokens, "kv_slots", 1, DType::kI32, kv_slots);
  const uint32_t layer = group.num_layers - 1;
  step.forward.ops = {
      KvWrite{qkv, slots, 0, layer, heads, group.num_kv_heads, group.head_dim, tensor_scales(group.dtype, deviation)}};
  test_case.steps = {std::move(step)};
  return test_case;
}

}  // namespace

TEST_CASE("kv_write stores k and v where the slots say and nowhere else", "[kv_write]") {
  auto rng = test_rng("kv_write");
  Suite suite;
  for (KvDType dtype : kKvDTypes) {
    suite.cases.push_back(write_case({2, 3, 64, 16, 7, dtype}, 9, 1, 1, 1, rng));
    suite.cases.push_back(write_case({2, 3, 64, 16, 7, dtype}, 9, 0, 4, 1, rng));
    suite.cases.push_back(write_case({2, 3, 64, 16, 7, dtype}, 9, 21, 32, 1, rng));
    suite.cases.push_back(write_case({1, 2, 64, 32, 5, dtype}, 14, 70, 128, 30, rng));
    if (!kv_has_block_scales(dtype)) suite.cases.push_back(write_case({2, 8, 80, 16, 3, dtype}, 8, 5, 8, 0.01, rng));
    suite.cases.push_back(write_case({1, 2, 96, 64, 3, dtype}, 8, 9, 16, 1, rng));
    suite.cases.push_back(write_case({3, 1, 128, 64, 2, dtype}, 8, 33, 64, 1, rng));
    suite.cases.push_back(write_case({1, 4, 256, 16, 4, dtype}, 8, 17, 32, 1, rng));
  }
  run(suite);
}

// In one list, as in a model whose layers differ.
TEST_CASE("kv_write stores in the pool of its group", "[kv_write]") {
  auto rng = test_rng("kv_write groups");
  Suite suite;
  for (const auto& [first, second] : {std::pair{KvDType::kF16, KvDType::kI8}, {KvDType::kF8Block, KvDType::kF16}}) {
    Case test_case;
    test_case.groups = {{2, 3, 64, 16, 7, first}, {1, 2, 128, 64, 5, second}};
    test_case.variant = kv_dtype_name(second);
    test_case.name = fmt::format("kv_write of two groups {} {}", kv_dtype_name(first), test_case.variant);
    constexpr uint32_t kRows = 21, kHeads = 6;
    Step step;
    step.add_row(0, 0, kRows);
    step.set_bucket(32);
    for (uint32_t g = 0; g < 2; ++g) {
      const KvGroup& group = test_case.groups[g];
      const uint32_t columns = (kHeads + 2 * group.num_kv_heads) * group.head_dim;
      test_case.kv.push_back(random_kv(group, rng));
      const auto places = random_blocks(group.num_blocks * group.block_tokens, kRows, rng);
      const TensorId qkv = step.input(Rows::kTokens, fmt::format("qkv{}", g), columns, DType::kF32,
                                      random_normal(rng, size_t{kRows} * columns));
      const TensorId slots = step.input(Rows::kTokens, fmt::format("kv_slots{}", g), 1, DType::kI32,
                                        std::vector<double>(places.begin(), places.end()));
      step.forward.ops.push_back(
          KvWrite{qkv, slots, g, group.num_layers - 1, kHeads, group.num_kv_heads, group.head_dim});
    }
    test_case.steps = {std::move(step)};
    suite.cases.push_back(std::move(test_case));
  }
  run(suite);
}

// In one launch where a backend fuses them. With the scale of a tensor there is one right answer but for ties.
TEST_CASE("heads are scaled, turned and stored one op after the other", "[kv_write]") {
  auto rng = test_rng("qkv heads");
  Suite suite;
  constexpr uint32_t kHeads = 8, kKvHeads = 2, kPositionMax = 300;
  for (const uint32_t dim : {64u, 128u}) {
    const WeightId freqs_id = suite.add_f32(rope_frequencies(dim));
    const WeightId q_weight = suite.add_weight(Encoding::kF32, 1, dim, rng);
    const WeightId k_weight = suite.add_weight(Encoding::kF32, 1, dim, rng);
    for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalves})
      for (const bool is_normed : {false, true})
        for (const auto& [rows, bucket] : {std::pair{1u, 1u}, {5u, 8u}, {67u, 128u}}) {
          const KvGroup group{2, kKvHeads, dim, 16, 9, KvDType::kF8Tensor};
          const uint32_t columns = (kHeads + 2 * kKvHeads) * dim;
          Case test_case;
          test_case.variant = pairing == RopePairing::kHalves ? "halves" : "pairs";
          test_case.name = fmt::format("{}rope and kv_write {} dim {} rows {} of {}", is_normed ? "qk_norm, " : "",
                                       test_case.variant, dim, rows, bucket);
          test_case.groups = {group};
          test_case.kv = {random_kv(group, rng)};
          Step step;
          step.add_row(0, 0, rows);
          step.set_bucket(bucket);
          std::vector<double> positions(rows);
          for (double& position : positions) position = static_cast<double>(rng() % (kPositionMax + 1));
          const auto places = random_blocks(group.num_blocks * group.block_tokens, rows, rng);
          const TensorId qkv = step.inout(Rows::kTokens, "qkv", columns, DType::kF32,
                                          random_normal(rng, size_t{rows} * columns), Tolerance::kRotation);
          step.last_output().slack = kPositionMax * 1.2e-7;
          const TensorId positions_id = step.input(Rows::kTokens, "positions", 1, DType::kI32, positions);
          const TensorId slots =
              step.input(Rows::kTokens, "kv_slots", 1, DType::kI32, std::vector<double>(places.begin(), places.end()));
          if (is_normed) step.forward.ops.push_back(QkNorm{qkv, q_weight, k_weight, kHeads, kKvHeads, dim, 1e-6f});
          step.forward.ops.push_back(Rope{qkv, positions_id, freqs_id, kHeads, kKvHeads, dim, dim, pairing, 1});
          step.forward.ops.push_back(
              KvWrite{qkv, slots, 0, 1, kHeads, kKvHeads, dim, tensor_scales(KvDType::kF8Tensor, 1)});
          test_case.steps = {std::move(step)};
          suite.cases.push_back(std::move(test_case));
        }
  }
  run(suite);
}

}  // namespace llmrt::optest
