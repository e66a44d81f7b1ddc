// Aim: the host decodes every encoding as the reference does and encodes to the nearest numbers. Method: all bit
// patterns of f16, random blocks beside tests/reference/dequant.h bit for bit, blocks worked out by hand, and error
// bounds of half a step.
#include "core/weights/row_codec.h"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <random>

#include "core/base/half.h"
#include "core/weights/small_floats.h"
#include "tests/reference/dequant.h"

using namespace llmrt;

namespace {

constexpr uint32_t kSeed = 20261122;

bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

std::vector<float> coded(Encoding encoding, const std::vector<float>& values) {
  std::vector<std::byte> row(row_bytes(encoding, values.size()));
  encode_row(encoding, values, row.data());
  std::vector<float> out(values.size());
  decode_row(encoding, row.data(), out);
  return out;
}

}  // namespace

TEST_CASE("f16 and bf16 mean what the reference says, for all bits") {
  int different = 0;
  for (uint32_t i = 0; i < 1u << 16; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    different += !same_bits(f16_value(bits), reference::f16_value(bits));
    different += !same_bits(bf16_value(bits), reference::bf16_value(bits));
    if (!std::isnan(f16_value(bits))) different += f16_bits(f16_value(bits)) != bits;
  }
  CHECK(different == 0);
}

TEST_CASE("f16 rounds as the reference does, ties to even") {
  std::mt19937 random(kSeed);
  INFO("seed " << kSeed);
  std::vector<float> values = {0.0f,  -0.0f,    65504.0f, 65519.9f,   65520.0f,
                               -1e9f, INFINITY, 0x1p-25f, 0x1.8p-24f, 1e-30f};
  for (int i = 0; i < 100000; ++i) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (uint32_t i = 0; i + 1 < 0x7c00; ++i)  // halfway between neighbours
    values.push_back((f16_value(static_cast<uint16_t>(i)) + f16_value(static_cast<uint16_t>(i + 1))) / 2);
  int different = 0;
  for (const float value : values)
    if (!std::isnan(value)) different += f16_bits(value) != reference::f16_bits(value);
  CHECK(different == 0);
}

TEST_CASE("every encoding decodes as in the reference") {
  std::mt19937 random(kSeed);
  INFO("seed " << kSeed);
  constexpr uint64_t kColumns = 4096;
  for (int e = 0; e < kNumEncodings; ++e) {
    const auto encoding = static_cast<Encoding>(e);
    std::vector<std::byte> row(row_bytes(encoding, kColumns));
    for (std::byte& byte : row) byte = static_cast<std::byte>(random());
    std::vector<float> found(kColumns), expected(kColumns);
    decode_row(encoding, row.data(), found);
    reference::dequantize_row(encoding, row.data(), kColumns, expected.data());
    int different = 0;
    for (uint64_t i = 0; i < kColumns; ++i) different += !same_bits(found[i], expected[i]);
    INFO(encoding_name(encoding));
    CHECK(different == 0);
  }
}

TEST_CASE("blocks that have an exact form keep it") {
  std::vector<float> steps(32);  // -8 .. 7, twice: the lowest number decides the sign of the scale
  for (int i = 0; i < 32; ++i) steps[i] = static_cast<float>(i % 16 - 8) * 0.25f;
  for (const Encoding encoding : {Encoding::kQ4_0, Encoding::kQ4_1, Encoding::kQ5_0}) {
    INFO(encoding_name(encoding));
    CHECK(coded(encoding, steps) == steps);
  }
  std::vector<float> fine(32), wide(32);
  for (int i = 0; i < 32; ++i) fine[i] = static_cast<float>(i) * 0.5f - 3;
  CHECK(coded(Encoding::kQ5_1, fine) == fine);
  for (int i = 0; i < 32; ++i) wide[i] = static_cast<float>(i * 8 - 127) * 0.125f;
  wide[31] = 127 * 0.125f;
  CHECK(coded(Encoding::kQ8_0, wide) == wide);
  const std::vector<float> zeros(64, 0.0f), constant(32, 0.75f);
  for (const Encoding encoding :
       {Encoding::kQ4_0, Encoding::kQ4_1, Encoding::kQ5_0, Encoding::kQ5_1, Encoding::kQ8_0}) {
    INFO(encoding_name(encoding));
    CHECK(coded(encoding, zeros) == zeros);
  }
  CHECK(coded(Encoding::kQ4_1, constant) == constant);
}

TEST_CASE("small floats keep what they have and round the rest to nearest, ties to even") {
  std::vector<float> four(32), eight(128);
  for (int i = 0; i < 32; ++i) four[i] = mxfp4_value(120, static_cast<uint32_t>(i) % 16);
  CHECK(coded(Encoding::kMXFP4, four) == four);
  for (int i = 0; i < 127; ++i) eight[i] = e4m3_value(static_cast<uint8_t>(i)) * (i % 3 ? 0.25f : -0.25f);
  CHECK(coded(Encoding::kFP8, eight) == eight);
  for (int i = 0; i < 256; ++i)
    if ((i & 127) != 127) CHECK(e4m3_bits(e4m3_value(static_cast<uint8_t>(i))) == i);
  std::vector<float> ties(32, 6.0f);  // scale 1
  for (const auto& [value, rounded] : {std::pair{0.25f, 0.0f},
                                       {0.75f, 1.0f},
                                       {1.25f, 1.0f},
                                       {1.75f, 2.0f},
                                       {2.5f, 2.0f},
                                       {3.5f, 4.0f},
                                       {5.0f, 4.0f},
                                       {-5.01f, -6.0f},
                                       {7.9f, 6.0f}}) {
    INFO(value);
    ties[3] = value;
    CHECK(coded(Encoding::kMXFP4, ties)[3] == rounded);
  }
  CHECK(e4m3_bits(17) == e4m3_bits(16));
  CHECK(e4m3_bits(19) == e4m3_bits(20));
  CHECK(e4m3_bits(0x1p-10f) == 0);
  CHECK(e4m3_bits(-1e9f) == 0xfe);
  for (const Encoding encoding : {Encoding::kMXFP4, Encoding::kFP8})
    CHECK(coded(encoding, std::vector<float>(128, 0.0f)) == std::vector<float>(128, 0.0f));
  CHECK(coded(Encoding::kMXFP4, std::vector<float>(32, 0x1p-130f)) == std::vector<float>(32, 0.0f));
}

TEST_CASE("q4_0 puts the number of greatest magnitude on its lowest quant") {
  std::vector<float> values(32, 0.0f);
  values[0] = 4.0f;    // scale 4 / -8
  values[17] = -3.6f;  // quant 7.2 above 8: held at 15, so 7 * 0.5
  std::vector<std::byte> row(18);
  encode_row(Encoding::kQ4_0, values, row.data());
  CHECK(f16_value(static_cast<uint16_t>(static_cast<int>(row[0]) | static_cast<int>(row[1]) << 8)) == -0.5f);
  CHECK(row[2] == std::byte{0x80});  // number 0: quant 0; number 16: 8
  CHECK(row[3] == std::byte{0xf8});  // number 1: quant 8; number 17: 15
  const std::vector<float> out = coded(Encoding::kQ4_0, values);
  CHECK(out[0] == 4.0f);
  CHECK(out[17] == -3.5f);
}

TEST_CASE("numbers come back within half a step, and what was encoded once stays") {
  std::mt19937 random(kSeed);
  INFO("seed " << kSeed);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> values(4096);
  for (float& value : values) value = normal(random);
  const struct {
    Encoding encoding;
    float steps;  // of a block's range (amax, or greatest - least) in one unit
  } cases[] = {{Encoding::kQ8_0, 127},
               {Encoding::kQ4_0, 8},
               {Encoding::kQ5_0, 16},
               {Encoding::kQ4_1, 15},
               {Encoding::kQ5_1, 31}};
  for (const auto& c : cases) {
    INFO(encoding_name(c.encoding));
    const bool has_minimum = c.encoding == Encoding::kQ4_1 || c.encoding == Encoding::kQ5_1;
    const std::vector<float> out = coded(c.encoding, values);
    int worse = 0;
    for (size_t block = 0; block < values.size(); block += 32) {
      const auto [least, greatest] = std::minmax_element(&values[block], &values[block] + 32);
      const float amax = std::max(-*least, *greatest);
      const float step = (has_minimum ? *greatest - *least : amax) / c.steps;
      for (size_t i = block; i < block + 32; ++i) {
        // The end of q4_0 and q5_0 across from the greatest magnitude lies one step short.
        const bool is_held = !has_minimum && c.encoding != Encoding::kQ8_0 && std::fabs(values[i]) > amax - 1.5f * step;
        worse += std::fabs(out[i] - values[i]) > step * (is_held ? 1.01f : 0.51f) + 1e-4f * amax;
      }
    }
    CHECK(worse == 0);
  }
  CHECK(coded(Encoding::kQ8_0, coded(Encoding::kQ8_0, values)) == coded(Encoding::kQ8_0, values));
}
