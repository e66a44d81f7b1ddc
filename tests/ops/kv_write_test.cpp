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

}  // namespace llmrt::optest
