// Every weight encoding, bit for bit as GGUF (or, of fp8, core/weights/encoding.h) defines it: block bytes to floats,
// in float32 arithmetic and GGUF's order of operations. Twins: backends/cuda/dequant.cuh, shaders/dequant.glsl.
// Compared with the Python package `gguf` by tests/reference/dequant_test.cpp.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/weights/encoding.h"
#include "tests/reference/number.h"

namespace llmrt::reference {

inline uint16_t load_u16(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}
inline uint32_t load_u32(const uint8_t* p) {
  return load_u16(p) | static_cast<uint32_t>(load_u16(p + 2)) << 16;
}
inline float load_f16(const uint8_t* p) {
  return f16_value(load_u16(p));
}

// 32 numbers of 4 or 5 bits: element j in the low nibbles, j + 16 in the high ones; the fifth bits in a word of their
// own. value = d * (q - offset) + m; m = -0 adds nothing, not even a sign.
inline void dequantize_32(const uint8_t* nibbles, uint32_t fifth_bits, float d, int offset, float m, float* out) {
  for (int j = 0; j < 16; ++j) {
    int low = (nibbles[j] & 15) | static_cast<int>((fifth_bits >> j) & 1) << 4;
    int high = (nibbles[j] >> 4) | static_cast<int>((fifth_bits >> (j + 16)) & 1) << 4;
    out[j] = d * static_cast<float>(low - offset) + m;
    out[j + 16] = d * static_cast<float>(high - offset) + m;
  }
}

// The 6-bit scale and min of sub-block `j` (of 8) in the 12 packed bytes of q4_k and q5_k.
inline void k_scale_min(const uint8_t* packed, int j, int* scale, int* min) {
  if (j < 4) {
    *scale = packed[j] & 63;
    *min = packed[j + 4] & 63;
  } else {
    *scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
    *min = (packed[j + 4] >> 4) | (packed[j] >> 6) << 4;
  }
}

// q4_k and q5_k: 8 sub-blocks of 32; pairs of them share 32 bytes of nibbles, and bit j of fifth[i] is the fifth bit of
// element i of sub-block j (fifth = null: none).
inline void dequantize_k45(const uint8_t* block, const uint8_t* fifth, const uint8_t* nibbles, float* out) {
  float d = load_f16(block), d_min = load_f16(block + 2);
  for (int j = 0; j < 8; ++j) {
    int scale, min;
    k_scale_min(block + 4, j, &scale, &min);
    float step = d * static_cast<float>(scale), base = d_min * static_cast<float>(min);
    for (int i = 0; i < 32; ++i) {
      int byte = nibbles[j / 2 * 32 + i];
      int q = j % 2 ? byte >> 4 : byte & 15;
      if (fifth) q += (fifth[i] >> j & 1) * 16;
      out[j * 32 + i] = step * static_cast<float>(q) - base;
    }
  }
}

// q6_k: 128 bytes of low nibbles, 64 of upper bit pairs, 16 signed scales, d. Each half of 128 elements has four runs
// of 32: nibbles of bytes 0..31 and 32..63 (low, then high), bit pairs 0..3 of the same 32 bytes.
inline void dequantize_q6_k(const uint8_t* block, float* out) {
  float d = load_f16(block + 208);
  for (int e = 0; e < 256; ++e) {
    int half = e / 128, run = e % 128 / 32, i = e % 32;
    int low = block[half * 64 + run % 2 * 32 + i] >> (run / 2 * 4) & 15;
    int high = block[128 + half * 32 + i] >> (run * 2) & 3;
    float step = d * static_cast<float>(static_cast<int8_t>(block[192 + e / 16]));
    out[e] = step * static_cast<float>((low | high << 4) - 32);
  }
}

// mxfp4: the exponent of a scale 2^(e - 127), then nibbles in the order of q4_0, each s ee m.
inline void dequantize_mxfp4(const uint8_t* block, float* out) {
  for (int j = 0; j < 32; ++j) {
    const int n = block[1 + j % 16] >> (j / 16 * 4) & 15, exponent = n >> 1 & 3, mantissa = n & 1;
    const double magnitude = exponent == 0 ? mantissa * 0.5 : std::ldexp(1 + mantissa * 0.5, exponent - 1);
    const float value = static_cast<float>(std::ldexp(magnitude, block[0] - 127));
    out[j] = block[0] == 255 ? std::numeric_limits<float>::quiet_NaN() : n & 8 ? -value : value;
  }
}

// fp8: f32 scale, 128 numbers of e4m3.
inline void dequantize_fp8(const uint8_t* block, float* out) {
  const float scale = std::bit_cast<float>(load_u32(block));
  for (int j = 0; j < 128; ++j) {
    const uint8_t bits = block[4 + j];
    out[j] = (bits & 127) == 127 ? std::numeric_limits<float>::quiet_NaN() : scale * static_cast<float>(f8_value(bits));
  }
}

// One block of geometry(encoding).elements_block numbers.
inline void dequantize_block(Encoding encoding, const uint8_t* block, float* out) {
  switch (encoding) {
    case Encoding::kF32:
      std::memcpy(out, block, 4);
      return;
    case Encoding::kF16:
      *out = load_f16(block);
      return;
    case Encoding::kBF16:
      *out = bf16_value(load_u16(block));
      return;
    case Encoding::kQ4_0:
      return dequantize_32(block + 2, 0, load_f16(block), 8, -0.0f, out);
    case Encoding::kQ4_1:
      return dequantize_32(block + 4, 0, load_f16(block), 0, load_f16(block + 2), out);
    case Encoding::kQ5_0:
      return dequantize_32(block + 6, load_u32(block + 2), load_f16(block), 16, -0.0f, out);
    case Encoding::kQ5_1:
      return dequantize_32(block + 8, load_u32(block + 4), load_f16(block), 0, load_f16(block + 2), out);
    case Encoding::kQ8_0:
      for (int j = 0; j < 32; ++j) out[j] = load_f16(block) * static_cast<float>(static_cast<int8_t>(block[2 + j]));
      return;
    case Encoding::kQ4_K:
      return dequantize_k45(block, nullptr, block + 16, out);
    case Encoding::kQ5_K:
      return dequantize_k45(block, block + 16, block + 48, out);
    case Encoding::kQ6_K:
      return dequantize_q6_k(block, out);
    case Encoding::kMXFP4:
      return dequantize_mxfp4(block, out);
    case Encoding::kFP8:
      return dequantize_fp8(block, out);
  }
}

inline void dequantize_row(Encoding encoding, const std::byte* row, uint64_t columns, float* out) {
  const EncodingGeometry& block = geometry(encoding);
  const auto* bytes = reinterpret_cast<const uint8_t*>(row);
  for (uint64_t c = 0; c < columns; c += block.elements_block, bytes += block.bytes_block)
    dequantize_block(encoding, bytes, out + c);
}

}  // namespace llmrt::reference
