// Kernels as values: what is chosen for an op's shapes on a device, and that the figures of Tuning decide it.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>

#include "backends/vulkan/choose_attention.h"
#include "backends/vulkan/choose_matmul.h"
#include "tests/vulkan/fake_device.h"

namespace llmrt::vulkan {
namespace {

// The gate and up matrix of an 8B model, whole.
Product product(Encoding encoding, uint32_t rows, bool woven) {
  return {.piece = {encoding, woven, 0, 28672, {}},
          .rows = rows,
          .columns = 4096,
          .out_columns = 28672,
          .x = DType::kF16,
          .batch_invariant = false};
}

std::string chosen(const std::string& device, Encoding encoding, uint32_t rows, const Tuning& tuning) {
  const Traits traits = fake_traits(device);
  return choose_product({traits, tuning}, product(encoding, rows, traits.fragment.m > 0), {}).kernel.shader;
}

TEST_CASE("the kernel of a product follows its rows") {
  struct Row {
    const char* device;
    Encoding encoding;
    uint32_t rows;
    const char* kernel;
  };
  const Row rows[] = {
      {"h200", Encoding::kQ4_0, 1, "matmul_row"},        {"h200", Encoding::kQ4_0, 8, "matmul_fragment"},
      {"h200", Encoding::kQ4_0, 9, "matmul_batch"},      {"h200", Encoding::kQ4_0, 256, "matmul_batch"},
      {"h200", Encoding::kQ4_0, 320, "matmul_wide"},     {"h200", Encoding::kQ4_K, 320, "matmul_matrix"},
      {"h200", Encoding::kF16, 3, "matmul_fragment"},    {"h200", Encoding::kF16, 4, "matmul_batch"},
      {"h200", Encoding::kF16, 232, "matmul_wide"},      {"h200", Encoding::kF32, 9, "matmul_tile"},
      {"h200", Encoding::kMXFP4, 1, "matmul_row"},       {"h200", Encoding::kMXFP4, 40, "matmul_batch"},
      {"h200", Encoding::kFP8, 1, "matmul_row"},         {"h200", Encoding::kFP8, 320, "matmul_wide"},
      {"h200-t2", Encoding::kMXFP4, 9, "matmul_pairs"},  {"h200-t1", Encoding::kFP8, 9, "matmul_pairs"},
      {"rdna3", Encoding::kMXFP4, 4, "matmul_matrix"},   {"h200-t2", Encoding::kQ4_0, 4, "matmul_vector"},
      {"h200-t2", Encoding::kQ4_0, 5, "matmul_dots"},    {"h200-t2", Encoding::kF16, 7, "matmul_pairs"},
      {"h200-t1", Encoding::kQ4_0, 7, "matmul_vector"},  {"h200-t1", Encoding::kQ4_0, 8, "matmul_pairs"},
      {"h200-t0", Encoding::kQ4_0, 8, "matmul_vector"},  {"h200-t0", Encoding::kQ4_0, 9, "matmul_tile"},
      {"lavapipe", Encoding::kQ4_0, 64, "matmul_lanes"}, {"rdna3", Encoding::kQ4_0, 3, "matmul_vector"},
      {"rdna3", Encoding::kQ4_0, 4, "matmul_matrix"},    {"lavapipe-gpu", Encoding::kQ4_0, 8, "matmul_fragment"},
      {"gcn", Encoding::kQ4_0, 8, "matmul_vector"},
  };
  for (const Row& row : rows) {
    INFO(row.device << " " << encoding_name(row.encoding) << ", rows " << row.rows);
    CHECK(chosen(row.device, row.encoding, row.rows, default_tuning()) == row.kernel);
  }
}

TEST_CASE("weights beyond f16 have kernels in f32, and no copy") {
  struct Row {
    const char* device;
    uint32_t rows;
    const char* kernel;
  };
  const Row rows[] = {
      {"h200", 1, "matmul_vector"},         {"h200", 8, "matmul_vector"},  {"h200", 9, "matmul_tile"},
      {"h200", 320, "matmul_tile"},         {"h200-t2", 9, "matmul_tile"}, {"h200-t1", 9, "matmul_tile"},
      {"h200-t0", 9, "matmul_tile"},        {"rdna3", 64, "matmul_tile"},  {"lavapipe", 64, "matmul_lanes"},
      {"lavapipe-gpu", 4, "matmul_vector"},
  };
  for (const Encoding encoding : {Encoding::kMXFP4, Encoding::kFP8})
    for (const Row& row : rows) {
      INFO(row.device << " " << encoding_name(encoding) << ", rows " << row.rows);
      const Traits traits = fake_traits(row.device);
      const Target target{traits, default_tuning()};
      Product beyond = product(encoding, row.rows, traits.fragment.m > 0);
      CHECK(can_write_halves(target, beyond.piece, beyond.columns) == (traits.fragment.m > 0));
      beyond.piece.is_beyond_f16 = true;
      CHECK(choose_product(target, beyond, {}).kernel.shader == std::string(row.kernel));
      CHECK(!can_write_halves(target, beyond.piece, beyond.columns));
    }
}

TEST_CASE("a figure of the tuning moves the choice") {
  Tuning tuning;
  tuning.few_float_rows_max = 4;
  CHECK(chosen("h200", Encoding::kF16, 4, tuning) == "matmul_fragment");
  tuning.vector_rows_max_beside_matrix = 8;
  CHECK(chosen("rdna3", Encoding::kQ4_0, 8, tuning) == "matmul_vector");
  tuning.vector_dots_rows_max = 2;
  CHECK(chosen("h200-t2", Encoding::kQ4_0, 3, tuning) == "matmul_dots");
  CHECK(chosen("h200-t1", Encoding::kQ4_0, 7, tuning) == "matmul_vector");
  tuning.vector_packed_quantized_rows_max = 6;
  CHECK(chosen("h200-t1", Encoding::kQ4_0, 7, tuning) == "matmul_pairs");
  tuning.batch_quantized_half_tiles_max = 2;
  CHECK(chosen("h200", Encoding::kQ4_0, 64, tuning) == "matmul_batch");
  CHECK(chosen("h200", Encoding::kQ4_0, 72, tuning) == "matmul_wide");
}

TEST_CASE("a choice prints its constants by name, and what its workgroups share") {
  const Traits traits = fake_traits("h200");
  const Target target{traits, default_tuning()};
  CHECK(print(choose_product(target, product(Encoding::kQ4_0, 320, true), {.bias = true})) ==
        "matmul_wide group_size=128 layout=259 bias=1 subgroups=4 m=16 n=8 k=16 row_lanes=4 activate=0 activation=0 "
        "parts=4 matrices=8 columns=4096 row_bytes=2304 shares=1 leaves_parts=0 grid=52x5x1 shared_bytes=34078720 "
        "tile_parts=0 arrivals=1040");
  CHECK(print(choose_product(target, product(Encoding::kQ6_K, 1, true), {})) ==
        "matmul_row group_size=512 layout=266 bias=0 columns=4096 subgroups=16 m=16 n=8 k=16 row_lanes=4 "
        "all_tiles=1792 activate=0 activation=0 rope=0 pool_dtype=0 groups=132 leaves_norm=0 norm_eps=0 "
        "grid=132x1x1");
}

namespace {

AttentionShape attention_shape(uint32_t head_dim, KvDType dtype, uint32_t num_tokens) {
  return {.head_dim = head_dim,
          .num_heads = 32,
          .num_kv_heads = 8,
          .kv_dtype = dtype,
          .out_dtype = DType::kF16,
          .soft_cap = false,
          .sinks = false,
          .num_tokens = num_tokens,
          .batch_invariant = false,
          .decode_only = false,
          .has_runs = false};
}

}  // namespace

TEST_CASE("attention's kernels follow head, pool and list") {
  const auto kernels = [](const std::string& device, uint32_t head_dim, KvDType dtype, bool decode_only) {
    const Traits traits = fake_traits(device);
    AttentionShape shape = attention_shape(head_dim, dtype, 64);
    shape.decode_only = decode_only;
    const auto launches = choose_attention({traits, default_tuning()}, shape);
    REQUIRE(launches);
    std::string names;
    for (const AttentionLaunch& launch : *launches)
      names += launch.kernel.shader.substr(std::string("paged_attention_").size()) + (launch.claims ? " " : "* ");
    return names;
  };
  CHECK(kernels("h200", 128, KvDType::kF16, false) == "wide fragment* merge ");
  CHECK(kernels("h200", 128, KvDType::kF16, true) == "fragment ");
  CHECK(kernels("h200", 128, KvDType::kI8, false) == "matrix fragment* merge ");
  CHECK(kernels("h200", 96, KvDType::kF16, false) == "matrix decode* merge ");
  CHECK(kernels("h200", 256, KvDType::kBF16, false) == "matrix decode* merge ");
  CHECK(kernels("h200-t1", 128, KvDType::kF16, false) == "block.pairs decode* merge ");
  CHECK(kernels("h200-t1", 128, KvDType::kBF16, false) == "block decode* merge ");
  CHECK(kernels("h200-t0", 64, KvDType::kF16, true) == "tile merge ");
  CHECK(kernels("lavapipe", 64, KvDType::kF8, true) == "lanes merge ");
  CHECK(kernels("xe", 128, KvDType::kF16, false) == "tile decode* merge ");
}

// In lists with runs a group has as many rows as it has room for, and no more groups than without. Batch-invariant
// lists have one kernel, with and without.
TEST_CASE("attention's kernels have rows for runs in lists that have some") {
  const auto decode = [](const std::string& device, KvDType dtype, bool batch_invariant, bool has_runs) {
    const Traits traits = fake_traits(device);
    AttentionShape shape = attention_shape(128, dtype, 8);
    shape.batch_invariant = batch_invariant;
    shape.decode_only = true;
    shape.has_runs = has_runs;
    const auto launches = choose_attention({traits, default_tuning()}, shape);
    REQUIRE(launches);
    return print(launches->front());
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  for (const KvDType dtype : {KvDType::kF16, KvDType::kBF16}) {
    INFO(kv_dtype_name(dtype));
    CHECK(has(decode("h200", dtype, false, false), " rows=4 "));
    CHECK(has(decode("h200", dtype, false, false), " has_runs=0"));
    CHECK(has(decode("h200", dtype, false, true), " rows=8 "));
    CHECK(has(decode("h200", dtype, false, true), " has_runs=1"));
    CHECK(has(decode("h200", dtype, false, true), "x8x1"));
    CHECK(has(decode("h200", dtype, true, false), " has_runs=1"));
    CHECK(decode("h200", dtype, true, false) == decode("h200", dtype, true, true));
  }
  CHECK(attention_tuning({fake_traits("h200"), default_tuning()}).decode_item_rows == 8);
  CHECK(attention_tuning({fake_traits("lavapipe"), default_tuning()}).invariant_item_rows == 8);
  CHECK(attention_tuning({fake_traits("h200-t1"), default_tuning()}).invariant_item_rows == 0);
  CHECK(attention_tuning({fake_traits("h200-t0"), default_tuning()}).invariant_item_rows == 8);
}

}  // namespace
}  // namespace llmrt::vulkan
