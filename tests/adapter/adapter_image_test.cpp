// Images: what a device computes from the bytes and the entry is scale * B (A x) of each part, padding is zero, and the
// numbers are those of the files, rounded once.
#include "core/adapter/adapter_image.h"

#include <cmath>

#include "core/base/half.h"
#include "tests/adapter/adapter_bytes.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

float number_at(std::span<const std::byte> bytes, DType dtype, uint64_t i) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, bytes.data() + i * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes.data() + i * 2, 2);
  return dtype == DType::kF16 ? f16_value(bits) : bf16_value(bits);
}

// out[n] of the comment of AdapterEntry, over the padded ranks.
std::vector<double> products(const AdapterImage& image, const AdapterRun& run, std::span<const float> x) {
  const auto bytes = image.run_bytes(run);
  const AdapterEntry& entry = run.entry;
  std::vector<double> out;
  for (uint32_t p = 0, row = 0, rank_begin = 0; p < entry.num_parts; rank_begin = entry.rank_end[p++]) {
    const uint32_t rank = entry.rank_end[p] - rank_begin;
    const auto a = bytes.subspan(entry.a_offset * kAdapterUnitBytes);
    std::vector<double> shrunk(rank);
    for (uint32_t j = 0; j < rank; ++j)
      for (size_t k = 0; k < x.size(); ++k)
        shrunk[j] += double{number_at(a, image.dtype, (rank_begin + j) * x.size() + k)} * x[k];
    for (uint32_t first = row; row < entry.row_end[p]; ++row) {
      double sum = 0;
      const auto b = bytes.subspan(entry.b_offset[p] * kAdapterUnitBytes);
      for (uint32_t j = 0; j < rank; ++j)
        sum += double{number_at(b, image.dtype, uint64_t{row - first} * rank + j)} * shrunk[j];
      out.push_back(entry.scale[p] * sum);
    }
  }
  return out;
}

std::vector<double> expected_products(const TestLora& lora, double scale, std::span<const float> x) {
  const TestMatrix b = neighbours(lora.b, lora.heads);
  std::vector<double> out;
  for (uint64_t row = 0; row < b.rows; ++row) {
    double sum = 0;
    for (uint64_t j = 0; j < lora.a.rows; ++j)
      for (uint64_t k = 0; k < x.size(); ++k) sum += double{b.at(row, j)} * lora.a.at(j, k) * x[k];
    out.push_back(scale * sum);
  }
  return out;
}

}  // namespace

TEST_CASE("the bytes and the entry make the products of every part") {
  const auto model = tiny_llama();
  for (const uint32_t rank : {1u, 4u, 8u, 13u, 100u})
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      CAPTURE(rank, dtype_name(dtype));
      const auto loras = usual_loras(rank);
      const auto adapter = expect_ok(read_peft(peft_config("", static_cast<int>(rank)), peft_tensors(loras), *model));
      const auto image = make_image(*adapter, dtype);
      REQUIRE(image.ok());
      REQUIRE(image->runs.size() == 4);
      CHECK(image->digest == adapter->digest);
      uint64_t end = 0;
      for (const AdapterRun& run : image->runs) {
        CHECK(run.offset == end);
        CHECK(run.size % kAdapterUnitBytes == 0);
        end = run.offset + run.size;
      }
      CHECK(end == image->bytes.size());
      const AdapterRun& qkv = image->runs[0];
      CHECK(qkv.entry.num_parts == 3);
      CHECK(qkv.entry.rank == 2 * ((rank + 7) / 8 * 8));
      CHECK(qkv.entry.rank_end[2] == qkv.entry.rank);
      CHECK(qkv.entry.row_end[2] == 64);
      const std::vector<float> x = test_matrix(1, 32, 77).numbers;
      const double scale = static_cast<float>(8.0 / rank);
      std::vector<double> expected = expected_products(loras[0], scale, x);
      for (const double value : expected_products(loras[1], scale, x)) expected.push_back(value);
      expected.resize(64, 0);  // v is not changed
      const std::vector<double> found = products(*image, qkv, x);
      REQUIRE(found.size() == expected.size());
      for (size_t i = 0; i < found.size(); ++i) CHECK(std::abs(found[i] - expected[i]) <= 1e-6 * std::abs(expected[i]));
      const std::vector<float> wide = test_matrix(1, 48, 78).numbers;
      CHECK(products(*image, image->runs[3], wide) == expected_products(loras[4], scale, wide));
    }
}

TEST_CASE("ranks are padded with zeros") {
  const auto model = tiny_llama();
  const auto adapter = expect_ok(
      read_peft(peft_config("", 3), peft_tensors({test_lora("mlp.down_proj", "ffn_down", 32, 48, 3, 1)}), *model));
  const auto image = make_image(*adapter, DType::kF32);
  REQUIRE(image.ok());
  REQUIRE(image->bytes.size() == (8 * 48 + 32 * 8) * 4);
  for (uint64_t i = 3 * 48; i < 8 * 48; ++i) REQUIRE(number_at(image->bytes, DType::kF32, i) == 0);
  for (uint64_t row = 0; row < 32; ++row)
    for (uint64_t j = 3; j < 8; ++j) REQUIRE(number_at(image->bytes, DType::kF32, 8 * 48 + row * 8 + j) == 0);
}

TEST_CASE("numbers that the dtype cannot hold are told of") {
  const auto model = tiny_llama();
  auto loras = usual_loras();
  loras[2].b.numbers[7] = 70000;
  const auto adapter = expect_ok(read_peft(peft_config(), peft_tensors(loras), *model));
  CHECK(make_image(*adapter, DType::kBF16).ok());
  const auto image = make_image(*adapter, DType::kF16);
  REQUIRE_FALSE(image.ok());
  CHECK_THAT(image.error().message, ContainsSubstring("expected numbers that f16 can hold, found 70000"));
  CHECK(image.error().code == ErrorCode::kUnsupported);
}
