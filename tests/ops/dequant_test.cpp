// The reference's decoders against the Python package `gguf` (fp8, which it does not have: a table made from the
// definition), bit for bit: fixed blocks, hashed. The table is the output of dequant_golden.py.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

#include "core/sample/gumbel.h"
#include "tests/reference/dequant.h"

namespace llmrt::optest {
namespace {

constexpr uint32_t kBlocks = 8;

struct Golden {
  const char* encoding;
  size_t count;
  uint64_t hash;
};
constexpr Golden kGolden[] = {
    {"f32", 8, 0x7e63a0565b2d6f54ull},     {"f16", 8, 0x27e178c8ee93614dull},     {"bf16", 8, 0xedda54a4cf3e712eull},
    {"q4_0", 256, 0x7751d9de11dfeff9ull},  {"q4_1", 256, 0x044d694965f47527ull},  {"q5_0", 256, 0x50b18635137751edull},
    {"q5_1", 256, 0xc0ae10552119c57cull},  {"q8_0", 256, 0x62b80e46428a07feull},  {"q4_k", 2048, 0x25dbb8bfd4fa6575ull},
    {"q5_k", 2048, 0x51ef182f46dcd37aull}, {"q6_k", 2048, 0x76d7712789025284ull}, {"mxfp4", 256, 0x1ccd12526c0c890eull},
    {"fp8", 1024, 0x1d2cea6f8a5cfe3full},
};

uint64_t fnv(const void* data, size_t num_bytes) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < num_bytes; ++i) hash = (hash ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001b3ull;
  return hash;
}

// The high bytes of the floats inside a block, as in dequant_golden.py: kept finite and below 2.
std::vector<uint32_t> float_high_bytes(Encoding encoding) {
  switch (encoding) {
    case Encoding::kF32:
      return {3};
    case Encoding::kQ4_1:
    case Encoding::kQ5_1:
    case Encoding::kQ4_K:
    case Encoding::kQ5_K:
      return {1, 3};
    case Encoding::kQ6_K:
      return {209};
    case Encoding::kMXFP4:
      return {0};  // the exponent
    case Encoding::kFP8:
      return {3};
    default:
      return {1};
  }
}

}  // namespace

TEST_CASE("every encoding is decoded bit for bit as gguf does", "[dequant]") {
  CHECK(std::size(kGolden) == kNumEncodings);
  for (const Golden& golden : kGolden) {
    const Encoding encoding = *parse_encoding(golden.encoding);
    const EncodingGeometry& block = geometry(encoding);
    std::vector<std::byte> bytes(kBlocks * block.bytes_block);
    for (uint32_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(noise_mix(i));
    for (uint32_t b = 0; b < kBlocks; ++b)
      for (uint32_t offset : float_high_bytes(encoding)) bytes[b * block.bytes_block + offset] &= std::byte{0xbf};
    std::vector<float> values(kBlocks * block.elements_block);
    reference::dequantize_row(encoding, bytes.data(), values.size(), values.data());
    INFO(golden.encoding);
    CHECK(values.size() == golden.count);
    CHECK(fnv(values.data(), values.size() * 4) == golden.hash);
  }
}

// A block whose byte i is 37 * i + 11, with a scale of 1 as twice a number is counted; the sums are of the package
// `gguf`, 0.19.0.
TEST_CASE("mxfp4 has its low nibbles first and its exponent alone decides what is not a number", "[dequant]") {
  uint8_t block[17];
  for (int i = 0; i < 17; ++i) block[i] = static_cast<uint8_t>(37 * i + 11);
  block[0] = 128;
  float values[32];
  reference::dequantize_block(Encoding::kMXFP4, block, values);
  double sum = 0, weighted = 0;
  for (int e = 0; e < 32; ++e) sum += values[e], weighted += values[e] * (e % 7 + 1);
  CHECK(sum == 25);
  CHECK(weighted == 85);
  CHECK((values[0] == 0 && values[1] == 6 && values[2] == -2));
  block[1] = 0x07;
  for (const auto& [exponent, number] : {std::pair{0, 0x1.8p-125f}, {254, INFINITY}, {252, 0x1.8p127f}}) {
    block[0] = static_cast<uint8_t>(exponent);
    reference::dequantize_block(Encoding::kMXFP4, block, values);
    CHECK(values[0] == number);
    CHECK(values[16] == 0);
  }
  block[0] = 255;
  reference::dequantize_block(Encoding::kMXFP4, block, values);
  CHECK(std::ranges::all_of(values, [](float value) { return std::isnan(value); }));
}

TEST_CASE("narrow floats round to nearest even", "[dequant]") {
  using namespace reference;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    if ((half & 0x7c00) != 0x7c00) CHECK(f16_bits(f16_value(half)) == half);
    if ((half & 0x7f80) != 0x7f80) CHECK(bf16_bits(bf16_value(half)) == half);
  }
  CHECK(f16_bits(1 + std::ldexp(1, -11)) == 0x3c00);  // a tie goes to the even one
  CHECK(f16_bits(1 + 3 * std::ldexp(1, -11)) == 0x3c02);
  CHECK(f16_bits(1 + std::ldexp(1.001, -11)) == 0x3c01);
  CHECK(f16_bits(65519.999) == 0x7bff);
  CHECK(f16_bits(65520) == 0x7c00);
  CHECK(f16_bits(std::ldexp(1, -25)) == 0);  // half the smallest subnormal: a tie
  CHECK(f16_bits(std::ldexp(1.001, -25)) == 1);
  CHECK(f16_bits(-0.0) == 0x8000);
  CHECK(bf16_bits(1 + std::ldexp(1, -8)) == 0x3f80);
  CHECK(bf16_bits(1 + 3 * std::ldexp(1, -8)) == 0x3f82);
  CHECK(bf16_bits(3.4e38) == 0x7f80);
  CHECK(f16_bits(NAN) == 0x7e00);
}

}  // namespace llmrt::optest
