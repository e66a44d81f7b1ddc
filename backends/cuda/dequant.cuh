// Packed weights (packed_matrix.h) to numbers. Two doors: element() gives one number in f32, exactly as
// core/weights/encoding.h defines it; Fragment gives each lane of a warp its share of a matrix tile in f16, for the
// matrix units.
//
// A Fragment is what lane 4 * g + t holds of ONE row: 32 of a step's 128 numbers, as four groups of 8 neighbours. Group
// i starts at column k_offset<E>(t, i) of the step; which columns a lane holds differs by encoding, so that its loads
// are 16 bytes wide, and does not matter to a product as long as x is read in the same places.
// f16 numbers are the exact value rounded once (q4_0 .. q8_0), or twice where a block's scale is itself a product
// (q4_k, q5_k, q6_k): relative error 2^-11 at most of the larger of the terms.
#pragma once

#include <cuda_fp16.h>

#include "backends/cuda/intrinsics.cuh"
#include "backends/cuda/packed_matrix.h"

namespace llmrt::cuda {

inline constexpr uint32_t kStep = 128;  // columns of a step: 4 lanes of 32

// ---- one number ----------------------------------------------------------------------------------------------------

__device__ inline float half_at(const uint8_t* bytes, uint64_t index) {
  return __half2float(reinterpret_cast<const __half*>(bytes)[index]);
}

// The 6-bit scale and min of sub-block j in the header of a q4_k or q5_k block.
__device__ inline void scale_and_min(const uint4& header, uint32_t j, uint32_t* scale, uint32_t* min) {
  const uint32_t upper = header.w >> (4 * j);
  *scale = (header.y >> (4 * j) & 15) | (upper & 3) << 4;
  *min = (header.z >> (4 * j) & 15) | (upper & 12) << 2;
}

__device__ inline float element(const PackedMatrix& m, uint64_t row, uint32_t column) {
  const uint64_t unit = row * (m.columns / kUnit) + column / kUnit;
  const uint32_t e = column % kUnit;
  const auto nibble = [&] {
    return reinterpret_cast<const uint32_t*>(m.plane[0])[unit * 4 + e / 8] >> ((e % 8) / 2 * 4 + e % 2 * 16) & 15;
  };
  const auto fifth = [&] { return (reinterpret_cast<const uint32_t*>(m.plane[1])[unit] >> (e / 2 + e % 2 * 16) & 1) << 4; };
  const auto number = [](uint32_t q, int offset) { return static_cast<float>(static_cast<int>(q) - offset); };
  const auto with_header = [&](uint32_t q) {
    const uint4 header = reinterpret_cast<const uint4*>(m.plane[2])[unit / 8];
    uint32_t scale, min;
    scale_and_min(header, unit % 8, &scale, &min);
    const __half2 d = half2_of(header.x);
    return __low2float(d) * static_cast<float>(scale) * static_cast<float>(q) -
           __high2float(d) * static_cast<float>(min);
  };
  switch (m.encoding) {
    case Encoding::kF32:
      return reinterpret_cast<const float*>(m.plane[0] + row * m.row_stride)[column];
    case Encoding::kF16: return half_at(m.plane[0] + row * m.row_stride, column);
    case Encoding::kBF16: {
      const uint16_t* numbers = reinterpret_cast<const uint16_t*>(m.plane[0] + row * m.row_stride);
      return __uint_as_float(static_cast<uint32_t>(numbers[column]) << 16);
    }
    case Encoding::kQ4_0: return half_at(m.plane[2], unit) * number(nibble(), 8);
    case Encoding::kQ4_1:
      return half_at(m.plane[2], unit * 2) * number(nibble(), 0) + half_at(m.plane[2], unit * 2 + 1);
    case Encoding::kQ5_0: return half_at(m.plane[2], unit) * number(nibble() | fifth(), 16);
    case Encoding::kQ5_1:
      return half_at(m.plane[2], unit * 2) * number(nibble() | fifth(), 0) + half_at(m.plane[2], unit * 2 + 1);
    case Encoding::kQ8_0:
      return half_at(m.plane[2], unit) *
             static_cast<float>(reinterpret_cast<const int8_t*>(m.plane[0])[unit * kUnit + e]);
    case Encoding::kQ4_K: return with_header(nibble());
    case Encoding::kQ5_K: return with_header(nibble() | fifth());
    case Encoding::kQ6_K: {
      const uint32_t pairs = reinterpret_cast<const uint32_t*>(m.plane[1])[unit * 2 + e / 16];
      const uint32_t upper = pairs >> ((e % 16) / 2 * 2 + e % 2 * 16) & 3;
      const float scale = static_cast<float>(reinterpret_cast<const int8_t*>(m.plane[2])[unit * 2 + e / 16]);
      return half_at(m.plane[3], unit / 8) * scale * number(nibble() | upper << 4, 32);
    }
  }
  return 0;
}

// ---- a lane's share of a row ---------------------------------------------------------------------------------------

constexpr bool is_plain16(Encoding e) {
  return e == Encoding::kF16 || e == Encoding::kBF16;
}

// First column, inside a step, of group i of lane t.
template <Encoding E>
__host__ __device__ constexpr uint32_t k_offset(uint32_t t, uint32_t i) {
  if (is_plain16(E)) return i * 32 + t * 8;
  if (E == Encoding::kQ8_0) return i / 2 * 64 + t * 16 + i % 2 * 8;
  return t * 32 + i * 8;
}
// The inverse: for a group that starts at column 8 * c of a step, i * 4 + t.
template <Encoding E>
__host__ __device__ constexpr uint32_t k_place(uint32_t c) {
  if (is_plain16(E)) return c;
  if (E == Encoding::kQ8_0) return (c / 8 * 2 + c % 2) * 4 + c / 2 % 4;
  return c % 4 * 4 + c / 4;
}

// Small unsigned numbers to f16 without a conversion: the f16 with bits 0x6400 + n is 1024 + n, for n < 1024.
inline constexpr uint32_t kMagic = 0x64006400;
constexpr uint32_t both_halves(uint32_t f16_bits) {
  return f16_bits << 16 | f16_bits;
}

// The two numbers of a pair, minus `offset`: in the low bits of the halves of `word`, or 4 bits higher. Exact.
__device__ inline __half2 low_pair(uint32_t word, uint32_t offset) {
  return __hsub2(half2_of(word | kMagic), half2_of(both_halves(0x6400 + offset)));  // 1024 + offset
}
__device__ inline __half2 high_pair(uint32_t word, uint32_t offset) {
  // Times 1/16, minus 64 + offset; between 64 and 128 the bits of f16 count sixteenths.
  return __hfma2(half2_of(word | kMagic), half2_of(both_halves(0x2c00)),
                 half2_of(both_halves(0xd400 + 16 * offset)));
}

// Bits of `word` moved so that bit `from` is at bit `to`.
__device__ inline uint32_t moved(uint32_t word, int from, int to) {
  return from > to ? word >> (from - to) : word << (to - from);
}

template <Encoding E>
struct Fragment;

// f16 and bf16. Rows are padded with zeros to 8 numbers; steps beyond the row are zero.
template <Encoding E>
  requires(is_plain16(E))
struct Fragment<E> {
  uint4 numbers[4];

  __device__ void load(const PackedMatrix& m, uint64_t row, uint32_t step, uint32_t t) {
    const uint8_t* at = m.plane[0] + row * m.row_stride;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t offset = 2 * (step * kStep + k_offset<E>(t, i));
      numbers[i] = offset < m.row_stride ? load_streaming(at + offset) : uint4{};
    }
  }
  // Group i as four pairs.
  __device__ void decode(int i, uint32_t (&pairs)[4]) const {
    const uint32_t words[4] = {numbers[i].x, numbers[i].y, numbers[i].z, numbers[i].w};
#pragma unroll
    for (int j = 0; j < 4; ++j)
      pairs[j] = E == Encoding::kF16 ? words[j]
                                     : half2_bits(__floats2half2_rn(__uint_as_float(words[j] << 16),
                                                                    __uint_as_float(words[j] & 0xffff0000)));
  }
};

// Lane t holds unit 4 * step + t.
template <Encoding E>
  requires(!is_plain16(E) && E != Encoding::kF32 && E != Encoding::kQ8_0)
struct Fragment<E> {
  static constexpr bool kFifth = E == Encoding::kQ5_0 || E == Encoding::kQ5_1 || E == Encoding::kQ5_K;
  static constexpr bool kPairs = E == Encoding::kQ6_K;
  static constexpr bool kHeader = E == Encoding::kQ4_K || E == Encoding::kQ5_K;
  static constexpr bool kMin = kHeader || E == Encoding::kQ4_1 || E == Encoding::kQ5_1;
  // What is subtracted from the stored number.
  static constexpr uint32_t kOffset = E == Encoding::kQ4_0 ? 8 : E == Encoding::kQ5_0 ? 16 : E == Encoding::kQ6_K ? 32 : 0;

  uint4 nibbles;
  uint2 upper;     // fifth bits in x, or bit pairs
  __half2 scale;   // of the unit, twice; q6_k: of its two halves
  __half2 base;    // kMin: what is added

  __device__ void load(const PackedMatrix& m, uint64_t row, uint32_t step, uint32_t t) {
    const uint32_t units = m.columns / kUnit, unit_in_row = step * 4 + t;
    upper = {};
    if (unit_in_row >= units) {
      nibbles = {};
      scale = base = half2_of(0);
      return;
    }
    const uint64_t unit = row * units + unit_in_row;
    nibbles = load_streaming(m.plane[0] + unit * 16);
    if constexpr (kFifth) upper.x = reinterpret_cast<const uint32_t*>(m.plane[1])[unit];
    if constexpr (kPairs) upper = reinterpret_cast<const uint2*>(m.plane[1])[unit];
    if constexpr (kHeader) {
      const uint4 header = reinterpret_cast<const uint4*>(m.plane[2])[unit / 8];
      uint32_t scale_6, min_6;
      scale_and_min(header, unit % 8, &scale_6, &min_6);
      const __half2 d = half2_of(header.x);
      scale = __float2half2_rn(__low2float(d) * static_cast<float>(scale_6));
      base = __float2half2_rn(-__high2float(d) * static_cast<float>(min_6));
    } else if constexpr (kPairs) {
      const float d = half_at(m.plane[3], unit / 8);
      const int8_t* scales = reinterpret_cast<const int8_t*>(m.plane[2]) + unit * 2;
      scale = __floats2half2_rn(d * static_cast<float>(scales[0]), d * static_cast<float>(scales[1]));
    } else if constexpr (kMin) {
      const __half2 both = reinterpret_cast<const __half2*>(m.plane[2])[unit];
      scale = __low2half2(both);
      base = __high2half2(both);
    } else {
      scale = __half2half2(reinterpret_cast<const __half*>(m.plane[2])[unit]);
    }
  }

  __device__ void decode(int i, uint32_t (&pairs)[4]) const {
    const uint32_t words[4] = {nibbles.x, nibbles.y, nibbles.z, nibbles.w};
    const __half2 factor = !kPairs ? scale : i < 2 ? __low2half2(scale) : __high2half2(scale);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bool high = j % 2;  // pairs 1 and 3 of a word are 4 bits further up than pairs 0 and 2
      const uint32_t word = (j < 2 ? words[i] : words[i] >> 8) & (high ? 0x00f000f0u : 0x000f000fu);
      const int pair = i * 4 + j, target = high ? 8 : 4;
      uint32_t more = 0;
      if constexpr (kFifth) more = moved(upper.x, pair, target) & (0x00010001u << target);
      if constexpr (kPairs) more = moved(i < 2 ? upper.x : upper.y, pair % 8 * 2, target) & (0x00030003u << target);
      const __half2 q = high ? high_pair(word | more, kOffset) : low_pair(word | more, kOffset);
      pairs[j] = half2_bits(kMin ? __hfma2(q, factor, base) : __hmul2(q, factor));
    }
  }
};

// Two runs of 16 numbers, in blocks 4 * step + t / 2 and two further on.
template <>
struct Fragment<Encoding::kQ8_0> {
  uint4 bytes[2];
  __half2 scale[2];

  __device__ void load(const PackedMatrix& m, uint64_t row, uint32_t step, uint32_t t) {
    const uint32_t units = m.columns / kUnit;
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t unit_in_row = step * 4 + i * 2 + t / 2;
      const bool inside = unit_in_row < units;
      const uint64_t unit = row * units + unit_in_row;
      bytes[i] = inside ? load_streaming(m.plane[0] + unit * kUnit + t % 2 * 16) : uint4{};
      scale[i] = inside ? __half2half2(reinterpret_cast<const __half*>(m.plane[2])[unit]) : half2_of(0);
    }
  }

  __device__ void decode(int i, uint32_t (&pairs)[4]) const {
    const uint4& run = bytes[i / 2];
    const uint32_t words[2] = {i % 2 ? run.z : run.x, i % 2 ? run.w : run.y};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      // Bytes 128 + q, two of them alone in their halves.
      const uint32_t word = __byte_perm(words[j / 2] ^ 0x80808080u, 0, j % 2 ? 0x4342 : 0x4140);
      pairs[j] = half2_bits(__hmul2(low_pair(word, 128), scale[i / 2]));
    }
  }
};

}  // namespace llmrt::cuda
