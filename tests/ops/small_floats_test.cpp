// mxfp4 and fp8, whose scales have the range of f32: weights that f16 cannot hold, alone and with what backends make in
// the kernel of a matmul, and numbers that are none. (The other shapes are those of every encoding: matmul_test.cpp.)
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>

#include "core/base/checked_math.h"
#include "tests/ops/op_harness.h"
#include "tests/reference/number.h"

namespace llmrt::optest {
namespace {

constexpr Encoding kSmallFloats[] = {Encoding::kMXFP4, Encoding::kFP8};

std::byte* block_of(const Suite& suite, WeightId id, uint64_t row, uint64_t block) {
  const WeightTensor& tensor = suite.weights.tensors[static_cast<size_t>(id)];
  return const_cast<std::byte*>(tensor.data) + row * tensor.bytes_row() + block * geometry(tensor.encoding).bytes_block;
}

Step small_floats_step(uint32_t rows) {
  Step step;
  step.add_row(0, 0, rows);
  step.set_bucket(rows > 8 ? round_up(rows, 8u) : rows);
  return step;
}

Case product_of(const Suite& suite, WeightGroupId id, uint32_t rows, double deviation, std::mt19937_64& rng) {
  const WeightGroup& group = suite.weights.groups[static_cast<size_t>(id)];
  const uint32_t n = static_cast<uint32_t>(group.rows), k = static_cast<uint32_t>(group.columns);
  Case test_case;
  test_case.variant = encoding_name(suite.weights.tensors[static_cast<size_t>(group.segments[0].tensor)].encoding);
  test_case.name = fmt::format("matmul {} of numbers like {} rows {} k {}", test_case.variant, deviation, rows, k);
  Step step = small_floats_step(rows);
  const auto values = random_normal(rng, size_t{rows} * k, 1, DType::kF16);
  const TensorId x = step.input(Rows::kTokens, "x", k, DType::kF16, values);
  const TensorId out = step.output(Rows::kTokens, "out", n, DType::kF32, Tolerance::kMatmul, DType::kF16,
                                   deviation * std::sqrt(static_cast<double>(k)));
  step.forward.ops = {Matmul{x, id, out}};
  step.last_output().of_quantized = true;
  test_case.steps = {std::move(step)};
  return test_case;
}

// With the activation behind it, or the residual and the norm.
Case product_and(const Suite& suite, WeightGroupId id, WeightId norm, uint32_t rows, std::mt19937_64& rng) {
  const bool gates = norm < 0;
  Case test_case = product_of(suite, id, rows, 1, rng);
  test_case.name += gates ? " and gate" : " and norm";
  Step step = small_floats_step(rows);
  const Step& plain = test_case.steps[0];
  const auto& group = suite.weights.groups[static_cast<size_t>(id)];
  const uint32_t n = static_cast<uint32_t>(group.rows), k = static_cast<uint32_t>(group.columns);
  const TensorId x = step.input(Rows::kTokens, "x", k, DType::kF16, plain.fills[0].values);
  const TensorId product = step.forward.add_tensor({"product", Rows::kTokens, n, DType::kF32});
  step.forward.ops = {Matmul{x, id, product}};
  if (gates) {
    const TensorId out = step.output(Rows::kTokens, "out", n / 2, DType::kF16, Tolerance::kMatmul, DType::kF16, 1);
    step.forward.ops.push_back(GatedActivation{product, Activation::kSilu, out});
  } else {
    const TensorId residual =
        step.inout(Rows::kTokens, "residual", n, DType::kF32, random_normal(rng, size_t{rows} * n), Tolerance::kMatmul);
    step.last_output().math = DType::kF16;
    step.last_output().scale = 1;
    const TensorId out = step.output(Rows::kTokens, "out", n, DType::kF16, Tolerance::kMatmul, DType::kF16, 1);
    step.forward.ops.push_back(RmsNorm{residual, product, norm, 1e-5f, out});
  }
  for (Output& output : step.outputs) {
    output.slack = 1e-2;
    output.of_quantized = true;
  }
  test_case.steps = {std::move(step)};
  return test_case;
}

}  // namespace

TEST_CASE("small floats multiply where f16 holds none of the weights", "[matmul]") {
  auto rng = test_rng("small floats range");
  Suite suite;
  suite.f16_copies_max = uint64_t{1} << 30;
  for (const Encoding encoding : kSmallFloats)
    for (const double deviation : {1e25, 3e5, 1e-9, 1e-25})
      for (const uint32_t k : {384u, 768u}) {
        const WeightGroupId group = suite.add_group({suite.add_weight(encoding, 67, k, rng, deviation)}, false, rng);
        for (const uint32_t rows : {1u, 8u, 13u, 40u, 130u})
          suite.cases.push_back(product_of(suite, group, rows, deviation, rng));
        for (const uint32_t rows : {1u, 40u}) {
          Case invariant = product_of(suite, group, rows, deviation, rng);
          invariant.steps[0].forward.batch_invariant = true;
          suite.cases.push_back(std::move(invariant));
        }
      }
  run(suite);
}

// One block of zeros has a scale that f16 does not hold. In one of the groups the other half of the rows is ordinary.
TEST_CASE("small floats of a wide range make what stands behind a matmul", "[matmul]") {
  auto rng = test_rng("small floats behind");
  Suite suite;
  const WeightId norm = suite.add_weight(Encoding::kF32, 1, 128, rng);
  for (const Encoding encoding : kSmallFloats) {
    constexpr uint32_t kColumns = 512;
    const double deviation = 1 / std::sqrt(512.0);
    const WeightId wide = suite.add_weight(encoding, 64, kColumns, rng, deviation);
    const WeightId plain = suite.add_weight(encoding, 64, kColumns, rng, deviation);
    std::byte* block = block_of(suite, wide, 7, 1);
    std::memset(block, 0, geometry(encoding).bytes_block);
    const float scale = 1e9f;
    if (encoding == Encoding::kMXFP4)
      block[0] = std::byte{200};
    else
      std::memcpy(block, &scale, 4);
    const WeightGroupId both = suite.add_group({wide, plain}, false, rng);
    suite.weights.groups.push_back({"wide", {{wide, 0, 64}}, -1, 64, kColumns});
    for (const WeightGroupId group : {both, both + 1})
      for (const uint32_t rows : {1u, 7u, 12u, 50u, 100u, 200u}) {
        suite.cases.push_back(product_and(suite, group, -1, rows, rng));
        if (group == both) suite.cases.push_back(product_and(suite, group, norm, rows, rng));
      }
  }
  run(suite);
}

TEST_CASE("a small float that is no number reaches the sums of its row, and no other", "[matmul][embed]") {
  auto rng = test_rng("small floats none");
  Suite suite;
  suite.vocab_size = 40;
  for (const Encoding encoding : kSmallFloats) {
    const WeightId weight = suite.add_weight(encoding, 40, 512, rng);
    std::byte* block = block_of(suite, weight, 21, 2);
    block[encoding == Encoding::kMXFP4 ? 0 : 4 + 77] = std::byte{255};
    const WeightGroupId group = suite.add_group({weight}, false, rng);
    for (const uint32_t rows : {1u, 8u, 12u, 100u}) {
      suite.cases.push_back(product_of(suite, group, rows, 1, rng));
      suite.cases.back().name += " with one that is none";
    }
  }
  run(suite);
}

// Scales that to f16 are nearly half way down to the next number: rounded, all would be too small, by 0.03 % as a mean.
// Sums of positive products do not average that out, as they do the roundings of single numbers.
TEST_CASE("the scale of fp8 is not rounded", "[matmul]") {
  auto rng = test_rng("small floats scale");
  Suite suite;
  const WeightId weight = suite.add_weight(Encoding::kFP8, 64, 512, rng);
  for (uint32_t row = 0; row < 64; ++row)
    for (uint32_t b = 0; b < 4; ++b) {
      std::byte* block = block_of(suite, weight, row, b);
      const float scale = (1024 + static_cast<float>(rng() % 1024) + 0.45f) / (1024 * 256);
      std::memcpy(block, &scale, 4);
      for (uint32_t i = 0; i < 128; ++i) block[4 + i] = static_cast<std::byte>(0x20 + rng() % 64);
    }
  const WeightGroupId group = suite.add_group({weight}, false, rng);
  for (const uint32_t rows : {1u, 12u, 40u, 100u, 300u}) {
    Case test_case = product_of(suite, group, rows, 1, rng);
    Step& step = test_case.steps[0];
    for (double& x : step.fills[0].values) x = 1;
    const TensorId out = step.outputs[0].tensor;
    test_case.check_tensors = [out, rows](const Outcome& expected, const Outcome& actual) {
      double sum = 0;
      for (size_t i = 0; i < size_t{rows} * 64; ++i) {
        const double want = reference::number_at(expected.tensors[0].at(out).data(), DType::kF32, i);
        sum += reference::number_at(actual.tensors[0].at(out).data(), DType::kF32, i) / want - 1;
      }
      const double mean = sum / (rows * 64);
      if (std::abs(mean) < 1e-4) return std::vector<std::string>();
      return std::vector<std::string>{fmt::format("mean error: expected less than 0.01 %, found {} %", mean * 100)};
    };
    suite.cases.push_back(std::move(test_case));
  }
  run(suite);
}

TEST_CASE("embed reads small floats of any size", "[embed]") {
  auto rng = test_rng("small floats embed");
  Suite suite;
  suite.vocab_size = 9;
  for (const Encoding encoding : kSmallFloats)
    for (const double deviation : {1e25, 1e-25}) {
      const WeightId weight = suite.add_weight(encoding, 9, 384, rng, deviation);
      Case test_case;
      test_case.variant = encoding_name(encoding);
      test_case.name = fmt::format("embed {} of numbers like {}", test_case.variant, deviation);
      Step step = small_floats_step(4);
      const TensorId ids = step.input(Rows::kTokens, "tokens", 1, DType::kI32, {0, 8, 3, 3});
      const TensorId out = step.output(Rows::kTokens, "out", 384, DType::kF32, Tolerance::kElementwise);
      step.forward.ops = {Embed{ids, weight, out}};
      test_case.steps = {std::move(step)};
      suite.cases.push_back(std::move(test_case));
    }
  run(suite);
}

}  // namespace llmrt::optest
