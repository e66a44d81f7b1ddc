// rope: both pairings, partial rotation, a magnitude, positions near zero and far out.
#include <catch2/catch_test_macros.hpp>

#include "tests/ops/op_harness.h"

namespace llmrt::optest {
namespace {

Case rope_case(WeightId freqs, uint32_t heads, uint32_t kv_heads, uint32_t dim, uint32_t rope_dim, RopePairing pairing,
               float magnitude, uint32_t rows, uint32_t bucket, uint32_t position_max, std::mt19937_64& rng) {
  const uint32_t columns = (heads + 2 * kv_heads) * dim;
  Case test_case;
  test_case.variant = pairing == RopePairing::kHalves ? "halves" : "pairs";
  test_case.name = fmt::format("rope {} heads {}/{} dim {} of {} rows {} of {} positions to {}", test_case.variant,
                               heads, kv_heads, rope_dim, dim, rows, bucket, position_max);
  Step step;
  if (rows > 0) step.add_row(0, 0, rows);
  step.set_bucket(bucket);
  std::vector<double> positions(rows);
  for (double& position : positions) position = static_cast<double>(rng() % (position_max + 1));
  if (rows > 1) positions[0] = 0, positions[1] = position_max;
  const TensorId qkv = step.inout(Rows::kTokens, "qkv", columns, DType::kF32,
                                  random_normal(rng, size_t{rows} * columns), Tolerance::kRotation);
  // An angle is a product in f32: its error grows with the position.
  step.last_output().slack = position_max * 1.2e-7;
  const TensorId positions_id = step.input(Rows::kTokens, "positions", 1, DType::kI32, positions);
  step.forward.ops = {Rope{qkv, positions_id, freqs, heads, kv_heads, dim, rope_dim, pairing, magnitude}};
  test_case.steps = {std::move(step)};
  return test_case;
}

}  // namespace

TEST_CASE("rope turns pairs of q and k and leaves the rest", "[rope]") {
  auto rng = test_rng("rope");
  Suite suite;
  struct Shape {
    uint32_t heads, kv_heads, dim, rope_dim;
  };
  for (auto [heads, kv_heads, dim, rope_dim] :
       {Shape{9, 3, 64, 64}, {1, 1, 80, 32}, {14, 2, 64, 64}, {8, 8, 96, 96}, {8, 1, 128, 128}, {4, 2, 256, 64}}) {
    const WeightId freqs = suite.add_f32(rope_frequencies(rope_dim));
    for (RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalves}) {
      for (auto [rows, bucket] : {std::pair{0u, 1u}, {1u, 1u}, {6u, 8u}, {67u, 128u}})
        suite.cases.push_back(rope_case(freqs, heads, kv_heads, dim, rope_dim, pairing, 1, rows, bucket, 300, rng));
      suite.cases.push_back(rope_case(freqs, heads, kv_heads, dim, rope_dim, pairing, 1.3f, 5, 8, 4095, rng));
      suite.cases.push_back(rope_case(freqs, heads, kv_heads, dim, rope_dim, pairing, 1, 5, 8, 131071, rng));
    }
  }
  run(suite);
}

}  // namespace llmrt::optest
