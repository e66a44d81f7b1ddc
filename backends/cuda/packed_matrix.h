// How a weight tensor lies in device memory. The bits are those of the file (core/weights/encoding.h), except that bf16
// lies there in f16 when all of a tensor is within its range (bf16 stays only what the matrix units cannot take);
// quantised blocks are taken apart into planes, so that every load is aligned and wide. Twins: ops/repack.cu writes
// this, dequant.cuh reads it.
//
// A row is cut into steps of 128 columns: 4 units of 32, each of 4 chunks of 8. One lane t of four multiplies chunk t
// of every unit, so the bits of those four chunks stand together. Rows are padded with zeros to a whole step (plain
// numbers: to 16 bytes). Bytes of a step in each plane:
//
//   f32 f16 bf16  0: the numbers in order
//   q4_0          0: 64 B of nibbles                                2: 4 f16 d
//   q4_1          0: the same                                       2: 4 times f16 d, f16 m
//   q5_0 q5_1     as q4_0, q4_1 and    1: 16 B of fifth bits
//   q8_0          0: 128 B                                          2: 4 f16 d
//   q4_k q5_k     as q4_0, q5_0 but                                 2: 16 B a block of 256 (two steps), see below
//   mxfp4         0: the same as q4_0                               2: 4 scales in bf16, which has all powers of two
//   fp8           0: as q8_0, e4m3 bytes                            2: f32 256 * scale; f16 near it, f16 the rest of it
//   q6_k          0: 64 B of nibbles   1: 32 B of upper bit pairs   2: 8 scales (int8)   3: f16 d a block of 256
//
// Element e of chunk t of unit u is pair p = e / 2, side s = e % 2:
//   nibbles     u32 word 4 * t + u, bit p * 4 + s * 16
//   fifth bits  u32 word t, bit u * 4 + p + s * 16
//   bit pairs   u32 word 2 * t + u / 2, bit (u % 2 * 4 + p) * 2 + s * 16
//   q8_0        byte u / 2 * 64 + t * 16 + u % 2 * 8 + e
// So one mask of a shifted word gives both numbers of a pair in the low bits of its two 16-bit halves.
// A scale of mxfp4 whose exponent is 255 is NaN; so is that of 128 numbers of fp8 of which one is.
// The 16 bytes of q4_k and q5_k: f16 d, f16 d_min; then three words whose byte j holds, of units j (low nibble) and j +
// 4 (high nibble) of the block, the low 4 bits of the scales, those of the mins, and scale >> 4 | min >> 4 << 2.
#pragma once

#include <cstdint>

#include "core/weights/encoding.h"

namespace llmrt::cuda {

inline constexpr int kNumPlanes = 4;
inline constexpr uint32_t kUnit = 32;
inline constexpr uint32_t kStep = 128;

// Bytes of a step in each plane; q6_k's d counts half, its rows have an even number of steps.
struct StepBytes {
  uint32_t plane[kNumPlanes];
};
constexpr StepBytes step_bytes(Encoding encoding) {
  switch (encoding) {
    case Encoding::kF32:
      return {{kStep * 4, 0, 0, 0}};
    case Encoding::kF16:
    case Encoding::kBF16:
      return {{kStep * 2, 0, 0, 0}};
    case Encoding::kQ4_0:
    case Encoding::kQ4_K:
    case Encoding::kMXFP4:
      return {{64, 0, 8, 0}};
    case Encoding::kQ4_1:
      return {{64, 0, 16, 0}};
    case Encoding::kQ5_0:
    case Encoding::kQ5_K:
      return {{64, 16, 8, 0}};
    case Encoding::kQ5_1:
      return {{64, 16, 16, 0}};
    case Encoding::kQ8_0:
    case Encoding::kFP8:
      return {{128, 0, 8, 0}};
    case Encoding::kQ6_K:
      return {{64, 32, 8, 1}};
  }
  return {};
}

// Bytes of one row in a plane.
constexpr uint64_t plane_row_bytes(Encoding encoding, int plane, uint64_t columns) {
  if (is_quantized(encoding)) return (columns + kStep - 1) / kStep * step_bytes(encoding).plane[plane];
  return plane == 0 ? (row_bytes(encoding, columns) + 15) / 16 * 16 : 0;
}

// Rows of one encoding that follow each other in every plane; device pointers. Passed to kernels by value.
struct PackedMatrix {
  const uint8_t* plane[kNumPlanes] = {};
  uint32_t rows = 0;
  uint32_t columns = 0;
  uint32_t row_stride = 0;  // bytes from row to row in plane 0
  Encoding encoding = Encoding::kF32;
  bool is_beyond_f16 = false;  // mxfp4, fp8: numbers in f16 would be wrong, so scales are applied to sums in f32

  // Whether its numbers, decoded, are right in f16.
  bool multiplies_in_f16() const { return (encoding == Encoding::kF16 || is_quantized(encoding)) && !is_beyond_f16; }
  PackedMatrix slice(uint64_t row_begin, uint32_t num_rows) const {
    PackedMatrix part = *this;
    for (int p = 0; p < kNumPlanes; ++p)
      if (part.plane[p]) part.plane[p] += row_begin * plane_row_bytes(encoding, p, columns);
    part.rows = num_rows;
    return part;
  }
  // True when `next` begins where this ends, so that both can be read as one.
  bool continues_with(const PackedMatrix& next) const {
    if (next.encoding != encoding || next.columns != columns || next.is_beyond_f16 != is_beyond_f16) return false;
    for (int p = 0; p < kNumPlanes; ++p)
      if (plane[p] && plane[p] + rows * plane_row_bytes(encoding, p, columns) != next.plane[p]) return false;
    return true;
  }
};

}  // namespace llmrt::cuda
