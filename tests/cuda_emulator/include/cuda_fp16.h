// Half precision on the host: bits, and arithmetic in double rounded once.
#pragma once

#include "cuda_runtime.h"

struct __half {
  uint16_t bits;
};
struct alignas(4) __half2 {
  __half x, y;
};

namespace emulator {
extern const float* const half_values;  // of all 65,536 bit patterns
inline float value(__half h) {
  return half_values[h.bits];
}
inline __half half_of(double value) {
  return {std::bit_cast<uint16_t>(static_cast<_Float16>(value))};
}
}  // namespace emulator

inline float __half2float(__half h) {
  return emulator::value(h);
}
inline __half __float2half_rn(float value) {
  return {std::bit_cast<uint16_t>(static_cast<_Float16>(value))};
}
inline __half2 __floats2half2_rn(float x, float y) {
  return {__float2half_rn(x), __float2half_rn(y)};
}
inline __half2 __float2half2_rn(float x) {
  return __floats2half2_rn(x, x);
}
inline float __low2float(__half2 h) {
  return emulator::value(h.x);
}
inline float __high2float(__half2 h) {
  return emulator::value(h.y);
}
inline __half2 __low2half2(__half2 h) {
  return {h.x, h.x};
}
inline __half2 __high2half2(__half2 h) {
  return {h.y, h.y};
}
inline __half2 __half2half2(__half h) {
  return {h, h};
}
inline __half2 __hsub2(__half2 a, __half2 b) {
  using emulator::half_of, emulator::value;
  return {half_of(double{value(a.x)} - value(b.x)), half_of(double{value(a.y)} - value(b.y))};
}
inline __half2 __hmul2(__half2 a, __half2 b) {
  using emulator::half_of, emulator::value;
  return {half_of(double{value(a.x)} * value(b.x)), half_of(double{value(a.y)} * value(b.y))};
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  using emulator::half_of, emulator::value;
  return {half_of(double{value(a.x)} * value(b.x) + value(c.x)), half_of(double{value(a.y)} * value(b.y) + value(c.y))};
}
