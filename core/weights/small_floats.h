// The floats of 4 and 8 bits that weights are made of, on the host: e2m1 (of mxfp4), e4m3fn (of fp8). Their encodings
// are in encoding.h. Rounding is to nearest, ties to even; what passes the greatest number becomes it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace llmrt {

// Twice the numbers of e2m1, so that all are whole.
inline constexpr int kTwiceE2M1[8] = {0, 1, 2, 3, 4, 6, 8, 12};

// Number `nibble` of a block of mxfp4 whose exponent is `e`. Products beyond f32 are infinite.
inline float mxfp4_value(uint8_t e, uint32_t nibble) {
  if (e == 255) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = std::ldexp(static_cast<float>(kTwiceE2M1[nibble & 7]), int{e} - 128);
  return nibble & 8 ? -magnitude : magnitude;
}

inline uint8_t e2m1_bits(float value) {
  const float twice = std::fabs(value) * 2;
  int best = 0;
  for (int i = 1; i < 8; ++i) {
    const float off = std::fabs(static_cast<float>(kTwiceE2M1[i]) - twice);
    const float least = std::fabs(static_cast<float>(kTwiceE2M1[best]) - twice);
    if (off < least || (off == least && i % 2 == 0)) best = i;
  }
  return static_cast<uint8_t>(best | (std::signbit(value) ? 8 : 0));
}

inline float e4m3_value(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  if ((bits & 127) == 127) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return bits & 128 ? -magnitude : magnitude;
}

inline uint8_t e4m3_bits(float value) {
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 128 : 0);
  if (std::isnan(value)) return sign | 127;
  const float magnitude = std::min(std::fabs(value), 448.0f);
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude in [2^(exponent - 1), 2^exponent)
  exponent = std::max(exponent - 1, -6);
  // Eighths of 2^exponent, 8 to 16, or fewer below 2^-6. 16 is 8 of the next exponent: the same sum.
  const int eighths = static_cast<int>(std::lrint(std::ldexp(magnitude, 3 - exponent)));
  return static_cast<uint8_t>(sign | ((exponent + 6) * 8 + eighths));
}

}  // namespace llmrt
