// How a weight tensor lies in device memory. The bits are those of the file (core/weights/encoding.h); quantised blocks
// are taken apart into planes, so that every load is aligned and wide, and the bits of 32 consecutive numbers (a unit)
// are put in the order in which kernels unpack them. Twins: ops/repack.cu writes this, dequant.cuh reads it.
//
//   f32 f16 bf16  plane 0: the numbers, rows padded with zeros to 16 bytes
//   q4_0 .. q5_1  plane 0: 16 B of nibbles a unit; 1: u32 of fifth bits; 2: f16 d, or f16 d and m
//   q8_0          plane 0: 32 B a unit; 2: f16 d
//   q4_k q5_k     plane 0: 16 B of nibbles a unit; 1: u32 of fifth bits; 2: 16 B a block of 256: f16 d, f16 d_min,
//                 u32 of the low 4 bits of the 8 scales, the same of the mins, u32 of (scale >> 4 | min >> 4 << 2)
//   q6_k          plane 0: 16 B of nibbles a unit; 1: 8 B of upper bit pairs; 2: 16 scales (int8); 3: f16 d
//
// Inside a unit, element e is pair p = e / 2, side s = e % 2.
//   nibbles:     word e / 8, bit (p % 4) * 4 + s * 16
//   fifth bits:  bit p + s * 16
//   bit pairs:   word e / 16, bit (p % 8) * 2 + s * 16
// So one mask of a shifted word gives both numbers of a pair in the low bits of its two 16-bit halves.
#pragma once

#include <cstdint>

#include "core/weights/encoding.h"

namespace llmrt::cuda {

inline constexpr int kNumPlanes = 4;
inline constexpr uint32_t kUnit = 32;

// Bytes that a block of geometry(encoding).elements_block numbers has in each plane (plain numbers: see plane_row_bytes).
struct PlaneBytes {
  uint32_t plane[kNumPlanes];
};
constexpr PlaneBytes plane_bytes(Encoding encoding) {
  switch (encoding) {
    case Encoding::kF32: return {{4, 0, 0, 0}};
    case Encoding::kF16:
    case Encoding::kBF16: return {{2, 0, 0, 0}};
    case Encoding::kQ4_0: return {{16, 0, 2, 0}};
    case Encoding::kQ4_1: return {{16, 0, 4, 0}};
    case Encoding::kQ5_0: return {{16, 4, 2, 0}};
    case Encoding::kQ5_1: return {{16, 4, 4, 0}};
    case Encoding::kQ8_0: return {{32, 0, 2, 0}};
    case Encoding::kQ4_K: return {{128, 0, 16, 0}};
    case Encoding::kQ5_K: return {{128, 32, 16, 0}};
    case Encoding::kQ6_K: return {{128, 64, 16, 2}};
  }
  return {};
}

// Bytes of one row in a plane.
constexpr uint64_t plane_row_bytes(Encoding encoding, int plane, uint64_t columns) {
  const uint64_t bytes = columns / geometry(encoding).elements_block * plane_bytes(encoding).plane[plane];
  return is_quantized(encoding) ? bytes : (bytes + 15) / 16 * 16;
}

// Rows of one encoding that follow each other in every plane; device pointers. Passed to kernels by value.
struct PackedMatrix {
  const uint8_t* plane[kNumPlanes] = {};
  uint32_t rows = 0;
  uint32_t columns = 0;
  uint32_t row_stride = 0;  // bytes from row to row in plane 0
  Encoding encoding = Encoding::kF32;
  bool f16_safe = true;  // every number is within f16's range, so the matrix units can take it

  PackedMatrix slice(uint64_t row_begin, uint32_t num_rows) const {
    PackedMatrix part = *this;
    for (int p = 0; p < kNumPlanes; ++p)
      if (part.plane[p]) part.plane[p] += row_begin * plane_row_bytes(encoding, p, columns);
    part.rows = num_rows;
    return part;
  }
  // True when `next` begins where this ends, so that both can be read as one.
  bool continues_with(const PackedMatrix& next) const {
    if (next.encoding != encoding || next.columns != columns || next.f16_safe != f16_safe) return false;
    for (int p = 0; p < kNumPlanes; ++p)
      if (plane[p] && plane[p] + rows * plane_row_bytes(encoding, p, columns) != next.plane[p]) return false;
    return true;
  }
};

}  // namespace llmrt::cuda
