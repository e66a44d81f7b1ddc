// Rounding to the narrow float formats, from double and to nearest even, written from the formats' definitions: the
// reference shares no conversion with the backends.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/ops/tensor.h"

namespace llmrt::reference {

// x rounded to `digits` significant bits, with subnormals below 2^exponent_min and infinity from 2^(exponent_max + 1).
inline double round_float(double x, int digits, int exponent_min, int exponent_max) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = std::max(std::ilogb(x), exponent_min);
  double unit = std::ldexp(1.0, exponent - digits + 1);
  double rounded = std::nearbyint(x / unit) * unit;  // both steps exact but the nearbyint: unit is a power of two
  return std::abs(rounded) >= std::ldexp(1.0, exponent_max + 1) ? std::copysign(INFINITY, x) : rounded;
}
inline double round_f16(double x) {
  return round_float(x, 11, -14, 15);
}
inline double round_bf16(double x) {
  return round_float(x, 8, -126, 127);
}

inline float decode_f16(uint16_t bits) {
  int exponent = (bits >> 10) & 31;
  int mantissa = bits & 1023;
  double magnitude = exponent == 0    ? std::ldexp(mantissa, -24)
                     : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                      : std::ldexp(1024 + mantissa, exponent - 25);
  return static_cast<float>(bits & 0x8000 ? -magnitude : magnitude);
}
inline float f16_value(uint16_t bits) {
  static const std::vector<float> values = [] {
    std::vector<float> all(1 << 16);
    for (uint32_t i = 0; i < all.size(); ++i) all[i] = decode_f16(static_cast<uint16_t>(i));
    return all;
  }();
  return values[bits];
}
inline float bf16_value(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t f16_bits(double x) {
  double rounded = round_f16(x);
  uint16_t sign = std::signbit(rounded) ? 0x8000 : 0;
  double magnitude = std::abs(rounded);
  if (std::isnan(magnitude)) return sign | 0x7e00;
  if (std::isinf(magnitude)) return sign | 0x7c00;
  if (magnitude < std::ldexp(1.0, -14)) return sign | static_cast<uint16_t>(std::ldexp(magnitude, 24));
  int exponent = std::ilogb(magnitude);
  int mantissa = static_cast<int>(std::ldexp(magnitude, 10 - exponent)) - 1024;
  return static_cast<uint16_t>(sign | ((exponent + 15) << 10) | mantissa);
}
inline uint16_t bf16_bits(double x) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(round_bf16(x))) >> 16);
}

// fp8 e4m3: 448 is the largest, 0x7f and 0xff are not numbers.
inline double f8_value(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const double magnitude = (bits & 0x7f) == 0x7f ? std::nan("")
                           : exponent == 0       ? std::ldexp(mantissa, -9)
                                                 : std::ldexp(8 + mantissa, exponent - 10);
  return bits & 0x80 ? -magnitude : magnitude;
}
// The nearest of all, ties to the even mantissa; beyond 448 stays there.
inline uint8_t f8_bits(double x) {
  if (std::isnan(x)) return 0x7f;
  const double magnitude = std::min(std::abs(x), 448.0);
  uint8_t best = 0;
  for (uint8_t bits = 1; bits < 0x7f; ++bits) {
    const double off = std::abs(f8_value(bits) - magnitude), least = std::abs(f8_value(best) - magnitude);
    if (off < least || (off == least && bits % 2 == 0)) best = bits;
  }
  return static_cast<uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
}

// Element `index` of a tensor.
inline double number_at(const std::byte* bytes, DType dtype, uint64_t index) {
  const auto get = [&](auto number) {
    std::memcpy(&number, bytes + index * sizeof(number), sizeof(number));
    return number;
  };
  switch (dtype) {
    case DType::kF32:
      return get(float{});
    case DType::kI32:
      return get(int32_t{});
    case DType::kF16:
      return f16_value(get(uint16_t{}));
    case DType::kBF16:
      return bf16_value(get(uint16_t{}));
  }
  return 0;
}

// f32 tensors keep their doubles: only what is stored narrower is rounded.
inline double round_to(DType dtype, double x) {
  if (dtype == DType::kF16) return round_f16(x);
  if (dtype == DType::kBF16) return round_bf16(x);
  return x;
}

}  // namespace llmrt::reference
