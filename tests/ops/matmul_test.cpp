// matmul: every encoding, odd shapes, one to many rows, groups of mixed segments, bias.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "core/base/checked_math.h"
#include "tests/ops/op_harness.h"
#include "tests/reference/dequant.h"
#include "tests/reference/number.h"

namespace llmrt::optest {
namespace {

// Marks what a group's matmul gave.
void mark_quantized(const Suite& suite, const WeightGroup& group, Step* step) {
  for (const auto& segment : group.segments)
    for (auto& output : step->outputs)
      output.of_quantized |= is_quantized(suite.weights.tensors[static_cast<size_t>(segment.tensor)].encoding);
}

// How large products with normally distributed x are: a weight row's norm. Of many rows the root of the columns, but
// one block of random scales may be several times that.
double product_scale(const Suite& suite, const WeightGroup& group) {
  double scale = std::sqrt(group.columns);
  if (group.rows > 4) return scale;
  std::vector<float> row(group.columns);
  for (const RowSegment& segment : group.segments) {
    const WeightTensor& tensor = suite.weights.tensors[static_cast<size_t>(segment.tensor)];
    for (uint64_t r = 0; r < segment.num_rows; ++r) {
      const std::byte* bytes = tensor.data + (segment.row_begin + r) * tensor.bytes_row();
      reference::dequantize_row(tensor.encoding, bytes, group.columns, row.data());
      double squares = 0;
      for (const float w : row) squares += double{w} * w;
      scale = std::max(scale, std::sqrt(squares));
    }
  }
  return scale;
}

// A case of `rows` live rows in a bucket of `bucket`.
Case matmul_case(const Suite& suite, WeightGroupId group_id, uint32_t rows, uint32_t bucket, DType dtype,
                 std::mt19937_64& rng) {
  const WeightGroup& group = suite.weights.groups[static_cast<size_t>(group_id)];
  const uint32_t n = static_cast<uint32_t>(group.rows), k = static_cast<uint32_t>(group.columns);
  Case test_case;
  test_case.variant = encoding_name(suite.weights.tensors[static_cast<size_t>(group.segments[0].tensor)].encoding);
  test_case.name =
      fmt::format("matmul {} rows {} of {} n {} k {} {}", test_case.variant, rows, bucket, n, k, dtype_name(dtype));
  Step step;
  if (rows > 0) step.add_row(0, 0, rows);
  step.set_bucket(bucket);
  const TensorId x = step.input(Rows::kTokens, "x", k, dtype, random_normal(rng, size_t{rows} * k, 1, dtype));
  const TensorId out =
      step.output(Rows::kTokens, "out", n, DType::kF32, Tolerance::kMatmul, dtype, product_scale(suite, group));
  step.forward.ops = {Matmul{x, group_id, out}};
  mark_quantized(suite, group, &step);
  test_case.steps = {std::move(step)};
  return test_case;
}

// A matmul and what a backend may make in its kernel: the gated activation behind it, or the addition to the residual
// that the norm behind it begins with.
enum class Behind { kGate, kGelu, kClamped, kNorm };
Case fused_case(const Suite& suite, WeightGroupId group_id, Behind behind, WeightId norm, uint32_t rows,
                uint32_t bucket, std::mt19937_64& rng, DType dtype = DType::kF16) {
  const WeightGroup& group = suite.weights.groups[static_cast<size_t>(group_id)];
  const uint32_t n = static_cast<uint32_t>(group.rows), k = static_cast<uint32_t>(group.columns);
  Case test_case;
  test_case.variant = encoding_name(suite.weights.tensors[static_cast<size_t>(group.segments[0].tensor)].encoding);
  test_case.name = fmt::format("matmul {} and {} rows {} of {} n {} k {}", test_case.variant,
                               behind == Behind::kGate      ? "gate"
                               : behind == Behind::kGelu    ? "gelu"
                               : behind == Behind::kClamped ? "clamped"
                                                            : "norm",
                               rows, bucket, n, k);
  Step step;
  step.add_row(0, 0, rows);
  step.set_bucket(bucket);
  const TensorId x = step.input(Rows::kTokens, "x", k, dtype, random_normal(rng, size_t{rows} * k, 1, dtype));
  const TensorId product = step.forward.add_tensor({"product", Rows::kTokens, n, DType::kF32});
  step.forward.ops = {Matmul{x, group_id, product}};
  if (behind != Behind::kNorm) {
    const Activation activation = behind == Behind::kGate   ? Activation::kSilu
                                  : behind == Behind::kGelu ? Activation::kGelu
                                                            : Activation::kClampedSilu;
    const TensorId out = step.output(Rows::kTokens, "out", n / 2, dtype, Tolerance::kMatmul, DType::kF16, 1);
    step.forward.ops.push_back(GatedActivation{product, activation, out});
  } else {
    const TensorId residual =
        step.inout(Rows::kTokens, "residual", n, DType::kF32, random_normal(rng, size_t{rows} * n), Tolerance::kMatmul);
    step.last_output().math = DType::kF16;
    step.last_output().scale = 1;
    const TensorId out = step.output(Rows::kTokens, "out", n, DType::kF16, Tolerance::kMatmul, DType::kF16, 1);
    step.forward.ops.push_back(RmsNorm{residual, product, norm, 1e-5f, out});
  }
  for (Output& output : step.outputs) output.slack = 1e-2;
  mark_quantized(suite, group, &step);
  test_case.steps = {std::move(step)};
  return test_case;
}

uint32_t bucket_of(uint32_t rows) {
  return rows > 64 ? round_up(rows, 64u) : rows > 8 ? round_up(rows, 8u) : rows;
}

// Every device is asked for the dtypes that its lists have: f32 and its activation dtype.
constexpr DType kInputDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

}  // namespace

TEST_CASE("matmul multiplies every encoding at every number of rows", "[matmul]") {
  auto rng = test_rng("matmul rows");
  Suite suite;
  constexpr uint32_t kRows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33, 64, 65, 130};
  for (Encoding encoding : all_encodings()) {
    const uint32_t block = std::max(geometry(encoding).elements_block, 32u);
    const WeightGroupId group = suite.add_group({suite.add_weight(encoding, 67, block * 3, rng)}, false, rng);
    for (DType dtype : kInputDTypes)
      for (uint32_t rows : kRows) suite.cases.push_back(matmul_case(suite, group, rows, bucket_of(rows), dtype, rng));
  }
  run(suite);
}

TEST_CASE("matmul multiplies the many rows of a prompt", "[matmul]") {
  auto rng = test_rng("matmul prompt");
  Suite suite;
  for (Encoding encoding : {Encoding::kF16, Encoding::kBF16, Encoding::kQ4_0, Encoding::kQ8_0}) {
    const WeightGroupId group = suite.add_group({suite.add_weight(encoding, 150, 320, rng)}, true, rng);
    for (DType dtype : kInputDTypes) suite.cases.push_back(matmul_case(suite, group, 300, bucket_of(300), dtype, rng));
    suite.cases.push_back(matmul_case(suite, group, 125, bucket_of(125), DType::kF16, rng));
  }
  run(suite);
}

TEST_CASE("matmul of quantised weights divides any number of outputs between blocks", "[matmul]") {
  auto rng = test_rng("matmul blocks");
  Suite suite;
  const auto add = [&](Encoding encoding, uint32_t n, uint32_t k, std::initializer_list<uint32_t> rows) {
    const WeightGroupId group = suite.add_group({suite.add_weight(encoding, n, k, rng)}, false, rng);
    for (uint32_t r : rows) suite.cases.push_back(matmul_case(suite, group, r, bucket_of(r), DType::kF16, rng));
  };
  for (Encoding encoding : {Encoding::kQ4_0, Encoding::kQ8_0, Encoding::kQ6_K})
    add(encoding, 300, 2304, {12, 40, 100, 200, 400});
  for (Encoding encoding : all_encodings())
    if (is_quantized(encoding)) add(encoding, 300, 768, {1, 16, 20, 32, 36, 48, 52, 64});
  for (Encoding encoding : all_encodings())
    if (is_quantized(encoding))
      add(encoding, 4300, 256, {1, 9, 13, 16});  // more than two slabs for a block of each of 132
  add(Encoding::kQ4_0, 4000, 512, {100, 200});
  add(Encoding::kQ8_0, 8600, 256, {100, 200});
  add(Encoding::kQ8_0, 16800, 256, {100});
  run(suite);
}

TEST_CASE("matmul makes what stands behind it at every number of rows", "[matmul]") {
  auto rng = test_rng("matmul behind");
  Suite suite;
  const auto add = [&](Encoding encoding, Behind behind, uint32_t n, uint32_t k, std::initializer_list<uint32_t> rows) {
    const double deviation = 1 / std::sqrt(static_cast<double>(k));
    const WeightGroupId group = suite.add_group({suite.add_weight(encoding, n, k, rng, deviation)}, false, rng);
    const WeightId norm = suite.add_weight(Encoding::kF32, 1, n, rng);
    for (uint32_t r : rows) suite.cases.push_back(fused_case(suite, group, behind, norm, r, bucket_of(r), rng));
  };
  // Encodings take turns: every encoding at every number of rows is the test above.
  const std::initializer_list<uint32_t> rows[] = {{1, 21, 47, 100}, {8, 30, 54, 190}, {12, 39, 60, 250}};
  size_t turn = 0;
  for (Encoding encoding : all_encodings()) {
    if (encoding == Encoding::kF32) continue;
    add(encoding, Behind::kGate, 400, 768, rows[turn % 3]);
    add(encoding, Behind::kNorm, 200, 768, rows[++turn % 3]);
  }
  for (Encoding encoding : all_encodings()) {
    const WeightGroupId group = suite.add_group({suite.add_weight(encoding, 150, 512, rng, 0.05)}, false, rng);
    for (uint32_t r : {1, 3, 10})
      suite.cases.push_back(fused_case(suite, group, Behind::kGate, -1, r, bucket_of(r), rng, DType::kF32));
  }
  add(Encoding::kQ4_0, Behind::kGate, 14000, 256, {1, 24, 56, 100});
  add(Encoding::kQ8_0, Behind::kGate, 14000, 256, {10, 40, 64, 140});
  add(Encoding::kQ4_0, Behind::kNorm, 1000, 4096, {24, 56, 100});
  add(Encoding::kQ8_0, Behind::kNorm, 1000, 4096, {1, 40, 64, 140});
  for (Encoding encoding : {Encoding::kQ4_0, Encoding::kQ8_0}) add(encoding, Behind::kNorm, 4400, 512, {1, 11});
  for (Encoding encoding : {Encoding::kF16, Encoding::kQ4_0, Encoding::kQ8_0}) {
    add(encoding, Behind::kGelu, 400, 768, {1, 12, 30, 60, 100, 250});
    add(encoding, Behind::kClamped, 400, 768, {1, 12, 100, 250});
  }
  run(suite);
}

// Whatever precision x is rounded to: its rows alone, and no row beside them.
TEST_CASE("matmul hands on what is not finite", "[matmul]") {
  auto rng = test_rng("matmul finite");
  constexpr uint32_t kRows = 70, kOutputs = 136, kColumns = 512;
  Suite suite;
  for (Encoding encoding : all_encodings()) {
    const WeightGroupId group = suite.add_group({suite.add_weight(encoding, kOutputs, kColumns, rng)}, false, rng);
    Case test_case = matmul_case(suite, group, kRows, bucket_of(kRows), DType::kF16, rng);
    std::vector<double>& x = test_case.steps[0].fills.at(0).values;
    x[3 * kColumns + 77] = std::nan("");
    x[40 * kColumns + 130] = INFINITY;
    x[69 * kColumns + 511] = -INFINITY;
    const TensorId out = test_case.steps[0].outputs.at(0).tensor;
    test_case.check_tensors = [out](const Outcome& expected, const Outcome& actual) {
      for (uint32_t i = 0; i < kRows * kOutputs; ++i) {
        const uint32_t row = i / kOutputs;
        const double want = reference::number_at(expected.tensors[0].at(out).data(), DType::kF32, i);
        const double got = reference::number_at(actual.tensors[0].at(out).data(), DType::kF32, i);
        if (row == 3 || row == 40 || row == 69 ? std::isfinite(got) : !(std::abs(got - want) < 3))
          return std::vector{fmt::format("row {} output {}: expected {}, found {}", row, i % kOutputs, want, got)};
      }
      return std::vector<std::string>{};
    };
    suite.cases.push_back(std::move(test_case));
  }
  run(suite);
}

// More tiles than a device fills once with, of few and of many columns, which do not fill what is copied at once.
TEST_CASE("matmul gates the many rows of a prompt", "[matmul]") {
  auto rng = test_rng("matmul gates");
  Suite suite;
  const auto add = [&](uint32_t n, uint32_t k, std::initializer_list<uint32_t> rows) {
    const double deviation = 1 / std::sqrt(static_cast<double>(k));
    const WeightGroupId group = suite.add_group({suite.add_weight(Encoding::kF16, n, k, rng, deviation)}, false, rng);
    for (uint32_t r : rows) suite.cases.push_back(fused_case(suite, group, Behind::kGate, -1, r, bucket_of(r), rng));
  };
  add(17000, 72, {200});
  add(3000, 1032, {200, 500, 760});
  add(398, 392, {256});
  run(suite);
}

// So few outputs of so many columns that workgroups share them, and hand sums to each other or to the norm behind.
TEST_CASE("matmul hands sums of a few rows on", "[matmul]") {
  auto rng = test_rng("matmul sums");
  Suite suite;
  const WeightId norm = suite.add_weight(Encoding::kF32, 1, 64, rng);
  for (uint32_t columns : {2048u, 2816u}) {
    const double deviation = 1 / std::sqrt(static_cast<double>(columns));
    const WeightGroupId group =
        suite.add_group({suite.add_weight(Encoding::kQ4_0, 64, columns, rng, deviation)}, false, rng);
    for (uint32_t rows : {10u, 16u}) {
      suite.cases.push_back(matmul_case(suite, group, rows, 16, DType::kF16, rng));
      for (Behind behind : {Behind::kGate, Behind::kNorm})
        suite.cases.push_back(fused_case(suite, group, behind, norm, rows, 16, rng));
    }
  }
  run(suite);
}

TEST_CASE("matmul multiplies one row", "[matmul]") {
  auto rng = test_rng("matmul row");
  Suite suite;
  for (Encoding encoding : all_encodings()) {
    const WeightGroupId group = suite.add_group({suite.add_weight(encoding, 136, 768, rng)}, true, rng);
    for (DType dtype : {DType::kF32, DType::kF16})
      for (uint32_t rows : {1u, 0u}) suite.cases.push_back(matmul_case(suite, group, rows, 1, dtype, rng));
  }
  for (Encoding encoding : {Encoding::kF16, Encoding::kBF16, Encoding::kQ4_0, Encoding::kQ5_K}) {
    const WeightGroupId group = suite.add_group({suite.add_weight(encoding, 400, 512, rng, 0.04)}, false, rng);
    const WeightId norm = suite.add_weight(Encoding::kF32, 1, 400, rng);
    for (Behind behind : {Behind::kGate, Behind::kNorm})
      suite.cases.push_back(fused_case(suite, group, behind, norm, 1, 1, rng));
  }
  run(suite);
}

TEST_CASE("matmul of f16 weights makes what stands behind the many rows of a prompt", "[matmul]") {
  auto rng = test_rng("matmul f16 behind");
  Suite suite;
  for (const auto& [behind, n, k] : {std::tuple{Behind::kGate, 1200u, 256u}, {Behind::kNorm, 700u, 512u}}) {
    const double deviation = 1 / std::sqrt(static_cast<double>(k));
    const WeightGroupId group = suite.add_group({suite.add_weight(Encoding::kF16, n, k, rng, deviation)}, false, rng);
    const WeightId norm = suite.add_weight(Encoding::kF32, 1, n, rng);
    for (uint32_t r : {70, 140, 200, 300})
      suite.cases.push_back(fused_case(suite, group, behind, norm, r, bucket_of(r), rng));
  }
  run(suite);
}

// All of the weights have copies, or the smaller ones do.
TEST_CASE("matmul takes copies of quantised weights in f16 for many rows", "[matmul]") {
  constexpr uint64_t kSmaller = 2 * (8 * (150 * 512 + 200 * 256) + 96 * 512);  // all but the gates
  for (const uint64_t bytes_max : {uint64_t{1} << 40, kSmaller}) {
    auto rng = test_rng(fmt::format("matmul copies {}", bytes_max));
    Suite suite;
    suite.f16_copies_max = bytes_max;
    for (Encoding encoding : all_encodings()) {
      const auto add = [&](uint32_t n, uint32_t k, bool bias) {
        return suite.add_group({suite.add_weight(encoding, n, k, rng, 1 / std::sqrt(static_cast<double>(k)))}, bias,
                               rng);
      };
      const WeightGroupId plain = add(150, 512, true), gate = add(200, 512, false), down = add(200, 256, false);
      const WeightId norm = suite.add_weight(Encoding::kF32, 1, 200, rng);
      for (uint32_t r : {3, 64, 65, 130, 300}) {
        suite.cases.push_back(matmul_case(suite, plain, r, bucket_of(r), DType::kF16, rng));
        suite.cases.push_back(fused_case(suite, gate, Behind::kGate, -1, r, bucket_of(r), rng));
        suite.cases.push_back(fused_case(suite, down, Behind::kNorm, norm, r, bucket_of(r), rng));
      }
      suite.cases.push_back(matmul_case(suite, plain, 130, bucket_of(130), DType::kF32, rng));
    }
    const WeightGroupId mixed = suite.add_group(
        {suite.add_weight(Encoding::kQ4_0, 64, 512, rng), suite.add_weight(Encoding::kQ6_K, 32, 512, rng),
         suite.add_weight(Encoding::kF16, 48, 512, rng)},
        true, rng);
    for (uint32_t r : {70, 310}) suite.cases.push_back(matmul_case(suite, mixed, r, bucket_of(r), DType::kF16, rng));
    run(suite);
  }
}

// Outputs and rows that fill tiles of 256 by 64 in part, and so few tiles that many workgroups share one.
TEST_CASE("matmul multiplies the many rows of a prompt by tiles", "[matmul]") {
  auto rng = test_rng("matmul tiles");
  Suite suite;
  for (Encoding encoding : {Encoding::kF16, Encoding::kBF16, Encoding::kQ4_0, Encoding::kQ8_0}) {
    const auto add = [&](uint32_t n, uint32_t k, bool bias) {
      const double deviation = 1 / std::sqrt(static_cast<double>(k));
      return suite.add_group({suite.add_weight(encoding, n, k, rng, deviation)}, bias, rng);
    };
    suite.cases.push_back(matmul_case(suite, add(304, 768, true), 300, 328, DType::kF16, rng));
    suite.cases.push_back(matmul_case(suite, add(528, 1536, false), 321, 384, DType::kF16, rng));
    const WeightId norm = suite.add_weight(Encoding::kF32, 1, 544, rng);
    suite.cases.push_back(fused_case(suite, add(544, 512, false), Behind::kGate, norm, 261, 264, rng));
    suite.cases.push_back(fused_case(suite, add(544, 512, false), Behind::kNorm, norm, 320, 320, rng));
  }
  const WeightGroupId mixed = suite.add_group(
      {suite.add_weight(Encoding::kQ4_0, 512, 512, rng), suite.add_weight(Encoding::kQ8_0, 256, 512, rng),
       suite.add_weight(Encoding::kF16, 256, 512, rng)},
      false, rng);
  suite.cases.push_back(matmul_case(suite, mixed, 310, 320, DType::kF16, rng));
  run(suite);
}

// So many that a backend may write quantised weights out first. Few shapes: a GPU's compiler takes seconds over each.
TEST_CASE("matmul multiplies so many rows that weights are worth expanding once", "[matmul]") {
  for (uint64_t copies_max : {uint64_t{0}, uint64_t{1} << 30}) {
    auto rng = test_rng(fmt::format("matmul many rows {}", copies_max));
    Suite suite;
    suite.f16_copies_max = copies_max;
    const auto add = [&](Encoding encoding, uint32_t n, uint32_t k, bool bias) {
      const double deviation = 1 / std::sqrt(static_cast<double>(k));
      return suite.add_group({suite.add_weight(encoding, n, k, rng, deviation)}, bias, rng);
    };
    for (Encoding encoding : all_encodings()) {
      if (!is_quantized(encoding)) continue;
      const uint32_t rows = encoding >= Encoding::kQ4_K || copies_max > 0 ? 325 : 1030;
      const WeightGroupId gate = add(encoding, 544, 512, false);
      suite.cases.push_back(fused_case(suite, gate, Behind::kGate, -1, rows, round_up(rows, 64u), rng));
    }
    suite.cases.push_back(matmul_case(suite, add(Encoding::kQ6_K, 304, 768, true), 390, 448, DType::kF16, rng));
    suite.cases.push_back(matmul_case(suite, add(Encoding::kQ8_0, 288, 768, true), 1030, 1088, DType::kF16, rng));
    suite.cases.push_back(matmul_case(suite, add(Encoding::kQ4_0, 544, 160, false), 1030, 1088, DType::kF16, rng));
    const WeightGroupId mixed = suite.add_group(
        {suite.add_weight(Encoding::kF16, 256, 512, rng), suite.add_weight(Encoding::kQ4_K, 512, 512, rng),
         suite.add_weight(Encoding::kQ8_0, 256, 512, rng), suite.add_weight(Encoding::kQ6_K, 256, 512, rng)},
        true, rng);
    suite.cases.push_back(matmul_case(suite, mixed, 1100, 1152, DType::kF16, rng));
    if (copies_max > 0) {  // which fewer rows may read
      const WeightId norm = suite.add_weight(Encoding::kF32, 1, 304, rng);
      for (const auto& [encoding, rows] :
           {std::pair{Encoding::kQ4_K, 130u}, {Encoding::kQ5_K, 200u}, {Encoding::kQ8_0, 250u}}) {
        const uint32_t bucket = round_up(rows, 16u);
        suite.cases.push_back(matmul_case(suite, add(encoding, 304, 512, true), rows, bucket, DType::kF16, rng));
        suite.cases.push_back(fused_case(suite, add(encoding, 544, 512, false), Behind::kGate, -1, rows, bucket, rng));
        suite.cases.push_back(
            fused_case(suite, add(encoding, 304, 512, false), Behind::kNorm, norm, rows, bucket, rng));
      }
    }
    run(suite);
  }
}

// Outputs in eights and whole runs of every field: what a backend may keep in an order of its own, for each of its
// kernels.
TEST_CASE("matmul multiplies every encoding at even shapes", "[matmul]") {
  auto rng = test_rng("matmul even shapes");
  Suite suite;
  for (Encoding encoding : all_encodings()) {
    const WeightGroupId group = suite.add_group({suite.add_weight(encoding, 72, 512, rng)}, false, rng);
    for (DType dtype : kInputDTypes)
      for (uint32_t rows : {1u, 6u, 12u, 70u})
        suite.cases.push_back(matmul_case(suite, group, rows, bucket_of(rows), dtype, rng));
    suite.cases.push_back(matmul_case(suite, group, 300, bucket_of(300), DType::kF16, rng));
  }
  run(suite);
}

// More groups than Vulkan devices have to take in one direction, where a group has one output.
TEST_CASE("matmul has more outputs than a grid is wide", "[matmul]") {
  auto rng = test_rng("matmul outputs");
  Suite suite;
  const WeightGroupId group = suite.add_group({suite.add_weight(Encoding::kF16, 65'601, 32, rng)}, true, rng);
  for (uint32_t rows : {1u, 2u}) suite.cases.push_back(matmul_case(suite, group, rows, rows, DType::kF32, rng));
  run(suite);
}

TEST_CASE("matmul multiplies every encoding at odd shapes", "[matmul]") {
  auto rng = test_rng("matmul shapes");
  Suite suite;
  for (Encoding encoding : all_encodings()) {
    const uint32_t block = std::max(geometry(encoding).elements_block, 32u);
    // One block, blocks that fill no power of two, real widths (576, 1536, 4864 and 896 are SmolLM2's and Qwen's).
    const uint32_t ks[] = {
        block, block * 2, block * 5, round_up(576u, block), round_up(896u, block), round_up(4864u, block)};
    const uint32_t ns[] = {1, 3, 31, 64, 129, 300};
    for (int i = 0; i < 6; ++i) {
      const WeightGroupId group = suite.add_group({suite.add_weight(encoding, ns[i], ks[i], rng)}, false, rng);
      const WeightGroupId wide = suite.add_group({suite.add_weight(encoding, ns[5 - i], ks[i], rng)}, false, rng);
      for (DType dtype : kInputDTypes)
        for (uint32_t rows : {1u, 7u, 40u}) {
          suite.cases.push_back(matmul_case(suite, group, rows, rows, dtype, rng));
          suite.cases.push_back(matmul_case(suite, wide, rows, rows, dtype, rng));
        }
    }
  }
  run(suite);
}

// A row's norm, behind the sum of a matmul where `sum` is its group, and the matmul that reads it; `kept`: something
// else reads the norm too, so that a backend can't make it inside the matmul.
Step normed_step(const Suite& suite, WeightGroupId sum, WeightId norm, WeightGroupId group_id, bool gated, bool kept,
                 std::mt19937_64 rng) {
  const WeightGroup& group = suite.weights.groups[static_cast<size_t>(group_id)];
  const uint32_t n = static_cast<uint32_t>(group.rows), k = static_cast<uint32_t>(group.columns);
  constexpr uint32_t kInner = 256;  // columns of `sum`
  Step step;
  step.add_row(0, 0, 1);
  step.set_bucket(1);
  const auto rated = [&](TensorId id) {
    step.last_output().scale = 1;
    step.last_output().slack = 1e-2;
    return id;
  };
  const TensorId out =
      gated ? rated(step.output(Rows::kTokens, "out", n / 2, DType::kF16, Tolerance::kMatmul, DType::kF16, 1))
            : rated(step.output(Rows::kTokens, "out", n, DType::kF32, Tolerance::kMatmul, DType::kF16, 1));
  const TensorId x = rated(
      step.inout(Rows::kTokens, "residual", k, DType::kF32, random_normal(rng, k, 1, DType::kF32), Tolerance::kMatmul));
  const TensorId normed =
      kept ? rated(step.output(Rows::kTokens, "normed", k, DType::kF16, Tolerance::kMatmul, DType::kF16, 1))
           : step.forward.add_tensor({"normed", Rows::kTokens, k, DType::kF16});
  TensorId delta = kNoTensor;
  if (sum >= 0) {
    const TensorId inner =
        step.input(Rows::kTokens, "inner", kInner, DType::kF16, random_normal(rng, kInner, 1, DType::kF16));
    delta = step.forward.add_tensor({"delta", Rows::kTokens, k, DType::kF32});
    step.forward.ops.push_back(Matmul{inner, sum, delta});
  }
  step.forward.ops.push_back(RmsNorm{x, delta, norm, 1e-5f, normed});
  if (gated) {
    const TensorId product = step.forward.add_tensor({"product", Rows::kTokens, n, DType::kF32});
    step.forward.ops.push_back(Matmul{normed, group_id, product});
    step.forward.ops.push_back(GatedActivation{product, Activation::kSilu, out});
  } else {
    step.forward.ops.push_back(Matmul{normed, group_id, out});
  }
  mark_quantized(suite, group, &step);
  return step;
}

TEST_CASE("matmul makes the norm of one row before it, to the same bits", "[matmul][rms_norm]") {
  auto rng = test_rng("matmul normed");
  Suite suite;
  const auto add = [&](std::initializer_list<Encoding> encodings, uint32_t n, uint32_t k, bool bias) {
    std::vector<WeightId> segments;
    for (const Encoding encoding : encodings)
      segments.push_back(suite.add_weight(encoding, n, k, rng, 1 / std::sqrt(static_cast<double>(k))));
    return suite.add_group(segments, bias, rng);
  };
  const auto add_cases = [&](std::string_view what, WeightGroupId group, uint32_t k) {
    const WeightGroupId sum = suite.add_group({suite.add_weight(Encoding::kQ4_0, k, 256, rng, 1.0 / 16)}, false, rng);
    const WeightId norm = suite.add_weight(Encoding::kF32, 1, k, rng);
    for (const bool has_sum : {false, true})
      for (const bool gated : {false, true}) {
        Case one;
        one.variant = what;
        one.name = fmt::format("norm before matmul {} k {}{}{}", what, k, has_sum ? " sum" : "", gated ? " gate" : "");
        const uint64_t seed = rng();
        for (const bool kept : {false, true})
          one.steps.push_back(normed_step(suite, has_sum ? sum : -1, norm, group, gated, kept, std::mt19937_64(seed)));
        const TensorId out = one.steps[0].outputs[0].tensor;
        one.check_tensors = [out](const Outcome&, const Outcome& actual) {
          const bool same = actual.tensors[0].at(out) == actual.tensors[1].at(out);
          return same ? std::vector<std::string>()
                      : std::vector<std::string>{"bits differ from those of the norm alone"};
        };
        suite.cases.push_back(std::move(one));
      }
  };
  for (const Encoding encoding : all_encodings())
    for (const uint32_t k : {256u, 2304u}) add_cases(encoding_name(encoding), add({encoding}, 200, k, false), k);
  for (const uint32_t k : {1280u, 4096u, 4352u}) {
    add_cases("q4_k", add({Encoding::kQ4_K}, 2500, k, true), k);
    add_cases("mixed", add({Encoding::kQ4_0, Encoding::kQ6_K, Encoding::kF16}, 80, k, true), k);
  }
  add_cases("f16", add({Encoding::kF16}, 200, 904, true), 904);
  run(suite);
}

// The last step has all rows; a row's bits there are its bits in every step.
std::vector<std::string> rows_differ(const Case& test_case, const Outcome& actual) {
  std::vector<std::string> wrong;
  const TensorId out = test_case.steps[0].outputs[0].tensor;
  const std::vector<std::byte>& all = actual.tensors.back().at(out);
  for (size_t i = 0; i + 1 < test_case.steps.size(); ++i) {
    const std::vector<std::byte>& some = actual.tensors[i].at(out);
    const size_t bytes =
        size_t{test_case.steps[i].live_rows(out)} * test_case.steps[i].forward.tensors[out].columns * 4;
    if (!std::equal(some.begin(), some.begin() + static_cast<std::ptrdiff_t>(bytes), all.begin()))
      wrong.push_back(fmt::format("step {} of {} rows: bits differ", i, test_case.steps[i].live_rows(out)));
  }
  return wrong;
}

TEST_CASE("a batch-invariant matmul makes the same bits of a row at every number of rows", "[matmul]") {
  auto rng = test_rng("matmul invariant");
  Suite suite;
  for (Encoding encoding : all_encodings()) {
    const uint32_t k = round_up(1792u, std::max(geometry(encoding).elements_block, 32u));
    const WeightGroupId group = suite.add_group(
        {suite.add_weight(encoding, 150, k, rng), suite.add_weight(Encoding::kF16, 20, k, rng)}, true, rng);
    for (DType dtype : {DType::kF32, DType::kF16}) {
      const std::vector<double> values = random_normal(rng, size_t{130} * k, 1, dtype);
      Case all;
      for (uint32_t rows : {1u, 2u, 8u, 9u, 17u, 33u, 64u, 65u, 130u}) {
        Case one = matmul_case(suite, group, rows, bucket_of(rows), dtype, rng);
        Step& step = one.steps[0];
        step.fills[0].values.assign(values.begin(), values.begin() + std::ptrdiff_t{rows} * k);
        step.forward.batch_invariant = true;
        one.name = "batch-invariant " + one.name;
        if (rows == 1 || rows == 33 || rows == 130) suite.cases.push_back(one);  // and they are right
        all.variant = one.variant;
        all.name = one.name;
        all.steps.push_back(std::move(step));
      }
      const Case steps = all;
      all.check_tensors = [steps](const Outcome&, const Outcome& actual) { return rows_differ(steps, actual); };
      suite.cases.push_back(std::move(all));
    }
  }
  run(suite);
}

TEST_CASE("matmul reads groups of mixed segments and adds their bias", "[matmul]") {
  auto rng = test_rng("matmul groups");
  Suite suite;
  for (Encoding first : all_encodings()) {
    const Encoding second = static_cast<Encoding>((static_cast<int>(first) + 4) % kNumEncodings);
    const std::vector<WeightId> tensors = {suite.add_weight(first, 48, 512, rng),
                                           suite.add_weight(second, 17, 512, rng),
                                           suite.add_weight(first, 33, 512, rng)};
    const WeightGroupId group = suite.add_group(tensors, true, rng);
    // A segment that is part of a tensor: rows from the middle.
    suite.weights.groups.push_back({"part", {{tensors[0], 5, 20}, {tensors[2], 0, 3}}, -1, 23, 512});
    const WeightGroupId part = group + 1;
    for (DType dtype : kInputDTypes)
      for (uint32_t rows : {1u, 5u, 33u}) {
        suite.cases.push_back(matmul_case(suite, group, rows, rows, dtype, rng));
        suite.cases.push_back(matmul_case(suite, part, rows, rows, dtype, rng));
      }
  }
  run(suite);
}

TEST_CASE("matmul reads wide rows a part at a time and narrow ones many at a time", "[matmul]") {
  auto rng = test_rng("matmul stages");
  Suite suite;
  // Rows that fit a stage of copies and rows that do not, in numbers that fill slabs and that do not.
  constexpr struct { uint32_t n, k; } kShapes[] = {{112, 1024}, {48, 4096}, {67, 4096}, {64, 6144}, {23, 8192}};
  for (Encoding encoding : all_encodings()) {
    if (!is_quantized(encoding)) continue;
    for (auto [n, k] : kShapes) {
      const WeightGroupId group = suite.add_group({suite.add_weight(encoding, n, k, rng)}, true, rng);
      for (uint32_t rows : {1u, 3u, 8u}) suite.cases.push_back(matmul_case(suite, group, rows, rows, DType::kF16, rng));
    }
  }
  run(suite);
}

TEST_CASE("matmul leaves padding alone and an empty batch be", "[matmul]") {
  auto rng = test_rng("matmul padding");
  Suite suite;
  const WeightGroupId group = suite.add_group({suite.add_weight(Encoding::kQ4_0, 96, 256, rng)}, false, rng);
  for (DType dtype : kInputDTypes)
    for (auto [rows, bucket] :
         {std::pair{0u, 1u}, {0u, 8u}, {0u, 64u}, {1u, 8u}, {3u, 4u}, {9u, 16u}, {17u, 64u}, {65u, 128u}, {2u, 256u}})
      suite.cases.push_back(matmul_case(suite, group, rows, bucket, dtype, rng));
  run(suite);
}

TEST_CASE("matmul and embed read a weight that passes a device's range", "[matmul][embed][large]") {
  auto rng = test_rng("large weight");
  Suite suite;
  // 139 MB: more than one range of a device that addresses 128 MiB at once, as vocabularies are.
  constexpr uint32_t kN = 34000, kK = 1024;
  suite.vocab_size = kN;
  const WeightId weight = suite.add_weight(Encoding::kF32, kN, kK, rng);
  const WeightGroupId group = suite.add_group({weight}, false, rng);
  for (uint32_t rows : {1u, 3u, 40u}) suite.cases.push_back(matmul_case(suite, group, rows, rows, DType::kF32, rng));
  // 147 and 134.3 MB of f16, which a backend may expand a part at a time; the second leaves little behind 128 MiB.
  const auto add = [&](uint32_t n) {
    return suite.add_group({suite.add_weight(Encoding::kQ4_K, n, 3072, rng, 1 / std::sqrt(3072.0))}, false, rng);
  };
  suite.cases.push_back(fused_case(suite, add(24000), Behind::kGate, -1, 325, 384, rng));
  suite.cases.push_back(matmul_case(suite, add(21856), 325, 384, DType::kF16, rng));
  Case embed;
  embed.name = "embed of a large table";
  embed.variant = "f32";
  Step step;
  const std::vector<double> tokens = {0, kN - 1, kN / 2, 32767, 32768, 32769, 31999};
  step.add_row(0, 0, static_cast<uint32_t>(tokens.size()));
  const TensorId ids = step.input(Rows::kTokens, "tokens", 1, DType::kI32, tokens);
  const TensorId out = step.output(Rows::kTokens, "out", kK, DType::kF32, Tolerance::kExact);
  step.forward.ops = {Embed{ids, weight, out}};
  embed.steps = {std::move(step)};
  suite.cases.push_back(std::move(embed));
  run(suite);
}

}  // namespace llmrt::optest
