// bfloat16 on the host.
#pragma once

#include "cuda_runtime.h"

struct __nv_bfloat16 {
  uint16_t bits;
};
inline float __bfloat162float(__nv_bfloat16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  if (std::isnan(value)) return {0x7fff};
  const unsigned bits = __float_as_uint(value);
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) {
  return x.bits;
}
