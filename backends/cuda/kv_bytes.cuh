// Numbers of a KV cache in 8 bits, as they are stored (core/kv/kv_format.h).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace llmrt::cuda {

// e4m3, rounded to nearest even; beyond 448 stays there, NaN stays.
__device__ inline uint8_t to_f8(float x) {
  const uint32_t bits = __float_as_uint(x), sign = bits >> 24 & 0x80;
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7f;
  const float a = fminf(fabsf(x), 448.0f);
  if (a < 0x1p-6f)
    return static_cast<uint8_t>(sign | static_cast<uint32_t>(rintf(a * 512)));  // or the first normal one
  const uint32_t normal = __float_as_uint(a);
  return static_cast<uint8_t>(sign | (((normal + 0x7ffff + (normal >> 20 & 1)) >> 20) - 0x3c0));
}
__device__ inline int8_t to_i8(float x) {
  return static_cast<int8_t>(fminf(fmaxf(rintf(x), -127.0f), 127.0f));
}

__device__ inline float byte_scale(float amax, bool is_i8) {
  return __fdiv_rn(amax, is_i8 ? 127.0f : 448.0f);
}
__device__ inline uint8_t to_byte(float x, float scale, bool is_i8) {
  const float q = scale == 0 ? 0.0f : __fdiv_rn(x, scale);
  return is_i8 ? static_cast<uint8_t>(to_i8(q)) : to_f8(q);
}

}  // namespace llmrt::cuda
