// Rows of small floats that kernels which round weights to f16 may multiply, and those that they may not.
#include "backends/vulkan/weight_rows.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace llmrt::vulkan {
namespace {

using Row = std::vector<std::byte>;

// Two blocks of mxfp4 whose nibbles are all `first` and `second`.
Row mxfp4(int first_exponent, int first, int second_exponent, int second) {
  Row row(34, static_cast<std::byte>(first * 17));
  std::fill(row.begin() + 17, row.end(), static_cast<std::byte>(second * 17));
  row[0] = static_cast<std::byte>(first_exponent);
  row[17] = static_cast<std::byte>(second_exponent);
  return row;
}
bool fits(const Row& row) {
  return fits_f16(Encoding::kMXFP4, 64, row.data());
}

// Two blocks of fp8, all zeros but one number.
Row fp8(float first_scale, int first, float second_scale, int second) {
  Row row(264);
  std::memcpy(row.data(), &first_scale, 4);
  std::memcpy(row.data() + 132, &second_scale, 4);
  row[4 + 127] = static_cast<std::byte>(first);
  row[132 + 4] = static_cast<std::byte>(second);
  return row;
}
bool fits8(const Row& row) {
  return fits_f16(Encoding::kFP8, 256, row.data());
}

}  // namespace

TEST_CASE("mxfp4 fits f16 where no scale is too large and what is too small is not all of a row") {
  CHECK(fits(mxfp4(120, 3, 118, 15)));
  CHECK(fits(mxfp4(128, 7, 128, 15)));
  CHECK(!fits(mxfp4(120, 3, 129, 1)));
  CHECK(!fits(mxfp4(129, 8, 120, 3)));  // infinity times 0 is no number
  CHECK(!fits(mxfp4(120, 3, 255, 0)));
  CHECK(fits(mxfp4(0, 0, 0, 8)));    // zeros alone
  CHECK(fits(mxfp4(0, 0, 104, 1)));  // 2^-24, the least of f16
  CHECK(!fits(mxfp4(0, 0, 103, 1)));
  CHECK(!fits(mxfp4(113, 1, 50, 7)));  // 2^-15 and less
  CHECK(fits(mxfp4(114, 2, 50, 7)));   // 2^-13
}

TEST_CASE("fp8 fits f16 where no scale is too large, no number NaN, and a row is not below f16") {
  CHECK(fits8(fp8(0.01f, 0x38, -1e-12f, 0x7e)));
  CHECK(fits8(fp8(-128, 0xfe, 1, 0)));
  CHECK(!fits8(fp8(129, 0, 1, 0x38)));  // infinity times 0
  CHECK(!fits8(fp8(std::numeric_limits<float>::quiet_NaN(), 0, 1, 0x38)));
  CHECK(!fits8(fp8(1, 0x7f, 1, 0x38)));
  CHECK(!fits8(fp8(1, 0x38, 1, 0xff)));
  CHECK(fits8(fp8(1, 0, 1e-30f, 0x80)));  // zeros alone
  CHECK(fits8(fp8(std::ldexp(1.0f, -13), 0x38, 1e-30f, 0x38)));
  CHECK(!fits8(fp8(std::ldexp(0.9f, -13), 0x38, 1e-30f, 0x38)));
}

TEST_CASE("other encodings are not looked at") {
  const Row row(34, std::byte{255});
  CHECK(fits_f16(Encoding::kQ8_0, 32, row.data()));
}

}  // namespace llmrt::vulkan
