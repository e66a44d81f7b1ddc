// Ops that a backend may run as one although another op, of other tensors, stands between: the results are those of the
// ops by themselves, also where the arena would give the op between the place of what the first one reads.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tests/ops/op_harness.h"

namespace llmrt::optest {
namespace {

// A norm, a matmul of it and the gated activation; `between`: a sum of other tensors stands in front of the activation,
// else in front of the matmul. All that they hand on is in the arena.
Step gated_step(const Suite& suite, WeightId norm, WeightGroupId group_id, uint32_t rows, DType dtype, bool between,
                std::mt19937_64 rng) {
  const WeightGroup& group = suite.weights.groups[static_cast<size_t>(group_id)];
  const uint32_t n = static_cast<uint32_t>(group.rows), k = static_cast<uint32_t>(group.columns);
  Step step;
  step.add_row(0, 0, rows);
  step.set_bucket(rows);
  const auto values = [&] { return random_normal(rng, size_t{rows} * k, 1, DType::kF32); };
  const TensorId out = step.output(Rows::kTokens, "out", n / 2, dtype, Tolerance::kMatmul, DType::kF16, 1);
  step.last_output().slack = 1e-2;
  step.last_output().of_quantized =
      is_quantized(suite.weights.tensors[static_cast<size_t>(group.segments[0].tensor)].encoding);
  const TensorId x = step.input(Rows::kTokens, "x", k, DType::kF32, values());
  const TensorId other = step.input(Rows::kTokens, "other", k, DType::kF32, values());
  const TensorId last = step.output(Rows::kTokens, "last", k, DType::kF32, Tolerance::kElementwise);
  const TensorId normed = step.forward.add_tensor({"normed", Rows::kTokens, k, dtype});
  const TensorId sum = step.forward.add_tensor({"sum", Rows::kTokens, k, DType::kF32});
  const TensorId product = step.forward.add_tensor({"product", Rows::kTokens, n, DType::kF32});
  step.forward.ops = {RmsNorm{x, kNoTensor, norm, 1e-5f, normed}};
  if (!between) step.forward.ops.push_back(Add{other, other, sum});
  step.forward.ops.push_back(Matmul{normed, group_id, product});
  if (between) step.forward.ops.push_back(Add{other, other, sum});
  step.forward.ops.push_back(GatedActivation{product, Activation::kSilu, out});
  step.forward.ops.push_back(Add{sum, other, last});
  return step;
}

}  // namespace

TEST_CASE("a matmul and its activation may stand apart", "[matmul][gated_activation]") {
  auto rng = test_rng("apart");
  Suite suite;
  for (const Encoding encoding : {Encoding::kF16, Encoding::kQ4_0}) {
    const WeightId norm = suite.add_weight(Encoding::kF32, 1, 512, rng);
    const WeightGroupId group =
        suite.add_group({suite.add_weight(encoding, 512, 512, rng, 1 / std::sqrt(512.0))}, false, rng);
    for (const uint32_t rows : {1u, 40u})
      for (const DType dtype : {DType::kF32, DType::kF16}) {
        Case one;
        one.variant = encoding_name(encoding);
        one.name = fmt::format("matmul {} and gate apart, rows {} {}", one.variant, rows, dtype_name(dtype));
        const uint64_t seed = rng();
        for (const bool between : {false, true})
          one.steps.push_back(gated_step(suite, norm, group, rows, dtype, between, std::mt19937_64(seed)));
        suite.cases.push_back(std::move(one));
      }
  }
  run(suite);
}

}  // namespace llmrt::optest
