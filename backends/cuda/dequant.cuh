// Packed weights (packed_matrix.h) to numbers. Two doors: element() gives one number in f32, as core/weights/encoding.h
// defines it; Fragment gives each lane of a warp its share of a matrix tile, for the matrix units.
//
// A Fragment is what lane 4 * g + t holds of ONE row in a step of 128 columns: for each unit i = 0..3, the 8 columns
// from 32 * i + 8 * t on. decode(i, t) gives them in f16, exactly: the numbers themselves (f16), or the small
// integers of the encoding. A number of unit i is then scale(i, step) * integer + base(i, step): both in f32, applied
// to sums over the unit, since all four lanes hold the same unit. So products of quantised weights are as exact as f32
// sums are. (q6_k: its 16-number scales are multiplied into the integers, up to 4,064, of which those above 2,048 lose
// their last bit. mxfp4 and fp8 have small floats in the place of integers, those of fp8 times 2^-8.) decode_scaled
// gives the numbers themselves, rounded to f16: for many rows, where scaling the sums of each row would take longer
// than multiplying does. The base of q4_k and q5_k is rounded before it is added; integers times their scale of 6 bits
// are exact: that takes the place of the offset of 1024, which goes in any case.
#pragma once

#include <cuda_fp16.h>

#include <type_traits>

#include "backends/cuda/intrinsics.cuh"
#include "backends/cuda/packed_matrix.h"
#include "backends/cuda/reduce.cuh"

namespace llmrt::cuda {

// ---- one number ----------------------------------------------------------------------------------------------------

__device__ inline float half_at(const uint8_t* bytes, uint64_t index) {
  return __half2float(reinterpret_cast<const __half*>(bytes)[index]);
}

// The 6-bit scales and mins of units 4 * half .. + 3 of a q4_k or q5_k block, a byte each.
__device__ inline uint32_t k_scales(const uint4& header, uint32_t half) {
  return (header.y >> (4 * half) & 0x0f0f0f0f) | (header.w >> (4 * half) & 0x03030303) << 4;
}
__device__ inline uint32_t k_mins(const uint4& header, uint32_t half) {
  return (header.z >> (4 * half) & 0x0f0f0f0f) | (header.w >> (4 * half) & 0x0c0c0c0c) << 2;
}
// The scale and min of unit u of those four.
struct KUnit {
  uint32_t scale, min;
};
__device__ inline KUnit k_unit(const uint4& header, uint32_t half, uint32_t u) {
  const uint32_t shift = 8 * u + 4 * half, rest = header.w >> shift;
  return {(header.y >> shift & 15) | (rest & 3) << 4, (header.z >> shift & 15) | (rest & 12) << 2};
}
__device__ inline float byte_of(uint32_t word, uint32_t i) {
  return static_cast<float>(word >> (8 * i) & 255);
}

__device__ inline float element(const PackedMatrix& m, uint64_t row, uint32_t column) {
  const uint64_t step = row * ((m.columns + kStep - 1) / kStep) + column / kStep;
  const uint32_t u = column % kStep / kUnit, t = column % kUnit / 8, p = column % 8 / 2, s = column % 2;
  const auto word = [&](int plane, uint64_t index) { return reinterpret_cast<const uint32_t*>(m.plane[plane])[index]; };
  const auto nibble = [&] { return word(0, step * 16 + 4 * t + u) >> (p * 4 + s * 16) & 15; };
  const auto fifth = [&] { return (word(1, step * 4 + t) >> (u * 4 + p + s * 16) & 1) << 4; };
  const auto number = [](uint32_t q, int offset) { return static_cast<float>(static_cast<int>(q) - offset); };
  const auto k45 = [&](uint32_t q) {
    const uint4 header = reinterpret_cast<const uint4*>(m.plane[2])[step / 2];
    const __half2 d = half2_of(header.x);
    const uint32_t half = static_cast<uint32_t>(step % 2);
    return __low2float(d) * byte_of(k_scales(header, half), u) * static_cast<float>(q) -
           __high2float(d) * byte_of(k_mins(header, half), u);
  };
  switch (m.encoding) {
    case Encoding::kF32:
      return reinterpret_cast<const float*>(m.plane[0] + row * m.row_stride)[column];
    case Encoding::kF16:
      return half_at(m.plane[0] + row * m.row_stride, column);
    case Encoding::kBF16: {
      const uint16_t* numbers = reinterpret_cast<const uint16_t*>(m.plane[0] + row * m.row_stride);
      return __uint_as_float(static_cast<uint32_t>(numbers[column]) << 16);
    }
    case Encoding::kQ4_0:
      return half_at(m.plane[2], step * 4 + u) * number(nibble(), 8);
    case Encoding::kQ4_1:
      return half_at(m.plane[2], step * 8 + u * 2) * number(nibble(), 0) + half_at(m.plane[2], step * 8 + u * 2 + 1);
    case Encoding::kQ5_0:
      return half_at(m.plane[2], step * 4 + u) * number(nibble() | fifth(), 16);
    case Encoding::kQ5_1:
      return half_at(m.plane[2], step * 8 + u * 2) * number(nibble() | fifth(), 0) +
             half_at(m.plane[2], step * 8 + u * 2 + 1);
    case Encoding::kQ8_0: {
      const int8_t* bytes = reinterpret_cast<const int8_t*>(m.plane[0]) + step * 128;
      return half_at(m.plane[2], step * 4 + u) *
             static_cast<float>(bytes[u / 2 * 64 + t * 16 + u % 2 * 8 + column % 8]);
    }
    case Encoding::kQ4_K:
      return k45(nibble());
    case Encoding::kQ5_K:
      return k45(nibble() | fifth());
    case Encoding::kQ6_K: {
      const uint32_t upper = word(1, step * 8 + 2 * t + u / 2) >> ((u % 2 * 4 + p) * 2 + s * 16) & 3;
      const float scale = static_cast<float>(reinterpret_cast<const int8_t*>(m.plane[2])[step * 8 + u * 2 + t / 2]);
      return half_at(m.plane[3], step / 2) * scale * number(nibble() | upper << 4, 32);
    }
    case Encoding::kMXFP4: {
      const uint32_t q = nibble(), scale = reinterpret_cast<const uint16_t*>(m.plane[2])[step * 4 + u];
      return __uint_as_float(scale << 16) * (0x1p14f * __low2float(half2_of((q & 7) << 9 | (q & 8) << 12)));
    }
    case Encoding::kFP8: {
      const uint32_t q = m.plane[0][step * 128 + u / 2 * 64 + t * 16 + u % 2 * 8 + column % 8];
      return reinterpret_cast<const float*>(m.plane[2])[step * 2] * __low2float(half2_of(f8_pair_bits(q)));
    }
  }
  return 0;
}

// ---- a lane's share of a row ---------------------------------------------------------------------------------------

// Small unsigned numbers to f16 without a conversion: the f16 with bits 0x6400 + n is 1024 + n, for n < 1024.
inline constexpr uint32_t kMagic = 0x64006400;
constexpr uint32_t both_halves(uint32_t f16_bits) {
  return f16_bits << 16 | f16_bits;
}

// The two numbers of a pair, minus `offset`: in the low bits of the halves of `word`, or 4 bits higher, beside kMagic.
// Exact.
__device__ inline __half2 low_pair(uint32_t word, uint32_t offset) {
  return __hsub2(half2_of(word), half2_of(both_halves(0x6400 + offset)));  // 1024 + offset
}
__device__ inline __half2 high_pair(uint32_t word, uint32_t offset) {
  // Times 1/16, minus 64 + offset; between 64 and 128 the bits of f16 count sixteenths.
  return __hfma2(half2_of(word), half2_of(both_halves(0x2c00)), half2_of(both_halves(0xd400 + 16 * offset)));
}

// What is taken off a pair beside kMagic times `factor`, an integer of up to 6 bits.
__device__ inline __half2 less_1024(__half2 factor) {
  return __hmul2(factor, half2_of(both_halves(0xe400)));
}

// Bits of `word` moved so that bit `from` is at bit `to`.
__device__ inline uint32_t moved(uint32_t word, int from, int to) {
  return from > to ? word >> (from - to) : word << (to - from);
}

// Encodings with a byte a number.
template <Encoding E>
inline constexpr bool kIsBytes = E == Encoding::kQ8_0 || E == Encoding::kFP8;

// The pair of e2m1 whose bits begin at bit `from` of the halves of `word`, times 2^-14: its exponent and mantissa are
// those of f16, whose exponent is 14 greater.
__device__ inline uint32_t e2m1_pair_bits(uint32_t word, int from) {
  return masked_or(moved(word, from, 9), 0x0e000e00, moved(word, from, 12) & 0x80008000u);
}
inline constexpr uint32_t kTwoTo14 = 0x74007400;

// Where a row, or all of them, begin in each plane.
using PlanePointers = const uint8_t* [kNumPlanes];

template <Encoding E>
struct Fragment;

// Rows are padded with zeros to 8 numbers; what is beyond the row is zero.
template <>
struct Fragment<Encoding::kF16> {
  static constexpr bool kScaled = false, kBased = false, kHeader = false;
  uint4 numbers[4];

  __device__ void load(const PackedMatrix& m, uint64_t row, uint32_t step, uint32_t t) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) load_unit(m, row, step, i, t);
  }
  __device__ void load_unit(const PackedMatrix& m, uint64_t row, uint32_t step, uint32_t i, uint32_t t) {
    const uint32_t offset = 2 * (step * kStep + i * kUnit + t * 8);
    numbers[i] = offset < m.row_stride ? load_streaming(m.plane[0] + row * m.row_stride + offset) : uint4{};
  }
  // The 8 numbers of unit i as four pairs.
  __device__ void decode(int i, [[maybe_unused]] uint32_t t, uint32_t (&pairs)[4]) const {
    pairs[0] = numbers[i].x, pairs[1] = numbers[i].y, pairs[2] = numbers[i].z, pairs[3] = numbers[i].w;
  }
  __device__ float scale(int, uint32_t) const {
    return 1;
  }
  __device__ float base(int, uint32_t) const {
    return 0;
  }
};

// The scales of a step: 4 f16 d, or 4 times d and m.
template <bool kMins>
struct UnitScales {
  uint2 words;

  __device__ void load(const uint8_t* plane, uint64_t step) { words = reinterpret_cast<const uint2*>(plane)[step]; }
  __device__ __half2 two(int i) const { return half2_of(i < 2 ? words.x : words.y); }
  __device__ float scale(int i, uint32_t) const { return i % 2 ? __high2float(two(i)) : __low2float(two(i)); }
  __device__ float base(int, uint32_t) const { return 0; }
  __device__ __half2 scale_pair(int i, uint32_t) const { return i % 2 ? __high2half2(two(i)) : __low2half2(two(i)); }
};
template <>
struct UnitScales<true> {
  uint4 words;

  __device__ void load(const uint8_t* plane, uint64_t step) { words = reinterpret_cast<const uint4*>(plane)[step]; }
  __device__ __half2 both(int i) const {
    return half2_of(i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w);
  }
  __device__ float scale(int i, uint32_t) const { return __low2float(both(i)); }
  __device__ float base(int i, uint32_t) const { return __high2float(both(i)); }
  __device__ __half2 scale_pair(int i, uint32_t) const { return __low2half2(both(i)); }
  __device__ __half2 base_pair(int i, uint32_t) const { return __high2half2(both(i)); }
};
// mxfp4: 4 powers of two in bf16.
struct PowerScales {
  uint2 words;

  __device__ void load(const uint8_t* plane, uint64_t step) { words = reinterpret_cast<const uint2*>(plane)[step]; }
  __device__ float scale(int i, uint32_t) const {
    const uint32_t two = i < 2 ? words.x : words.y;
    return __uint_as_float(i % 2 ? two & 0xffff0000u : two << 16);
  }
  __device__ float base(int, uint32_t) const { return 0; }
  // The scale of numbers by 2^-14, exact from 2^-38 to 2. PackedMatrix::is_beyond_f16 says that there are greater ones.
  __device__ __half2 scale_pair(int i, uint32_t step) const { return __float2half2_rn(0x1p14f * scale(i, step)); }
};
// fp8: one scale, 256 times it, also as the sum of two f16.
struct StepScale {
  uint2 words;

  __device__ void load(const uint8_t* plane, uint64_t step) { words = reinterpret_cast<const uint2*>(plane)[step]; }
  __device__ float scale(int, uint32_t) const { return __uint_as_float(words.x); }
  __device__ float base(int, uint32_t) const { return 0; }
  __device__ __half2 scale_pair(int, uint32_t) const { return __low2half2(half2_of(words.y)); }
  __device__ __half2 rest_pair(int, uint32_t) const { return __high2half2(half2_of(words.y)); }
};
// The header of a q4_k or q5_k block, of which a step is one half.
struct BlockScales {
  uint4 header;

  __device__ void load(const uint8_t* plane, uint64_t step) {
    header = reinterpret_cast<const uint4*>(plane)[step / 2];
  }
  __device__ float scale(int i, uint32_t step) const {
    return __low2float(half2_of(header.x)) * byte_of(k_scales(header, step % 2), i);
  }
  __device__ float base(int i, uint32_t step) const {
    return -__high2float(half2_of(header.x)) * byte_of(k_mins(header, step % 2), i);
  }
  __device__ __half2 scale_pair(int, uint32_t) const { return __low2half2(half2_of(header.x)); }
  __device__ __half2 base_pair(int i, uint32_t step) const { return __float2half2_rn(base(i, step)); }
  // The scale of 6 bits, of which scale_pair is the rest.
  __device__ __half2 factor_pair(int i, uint32_t step) const {
    return low_pair(__byte_perm(k_scales(header, step % 2), kMagic, 0x7070 + i * 0x0101), 0);
  }
};
// q6_k: 8 scales, two a unit, and d. A lane's chunk lies in one half of each unit.
struct SubScales {
  uint2 scales;
  __half d;

  __device__ float scale(int, uint32_t) const { return __half2float(d); }
  __device__ float base(int, uint32_t) const { return 0; }
  __device__ __half2 scale_pair(int, uint32_t) const { return __half2half2(d); }
  // The scale of this lane's chunk of unit i, twice, in f16.
  __device__ __half2 of_chunk(int i, uint32_t t) const {
    const uint32_t words = (i < 2 ? scales.x : scales.y) ^ 0x80808080u;
    return low_pair(__byte_perm(words, kMagic, 0x7070 + (i % 2 * 2 + t / 2) * 0x0101), 128);
  }
};

template <Encoding E>
requires(is_quantized(E) && !kIsBytes<E>) struct Fragment<E> {
  static constexpr bool kFifth = E == Encoding::kQ5_0 || E == Encoding::kQ5_1 || E == Encoding::kQ5_K;
  static constexpr bool kPairs = E == Encoding::kQ6_K;
  static constexpr bool kHeader = E == Encoding::kQ4_K || E == Encoding::kQ5_K;
  static constexpr bool kMins = E == Encoding::kQ4_1 || E == Encoding::kQ5_1;
  static constexpr bool kFloats = E == Encoding::kMXFP4;
  static constexpr bool kScaled = true, kBased = kHeader || kMins;
  // What is subtracted from the stored number.
  static constexpr uint32_t kOffset = E == Encoding::kQ4_0   ? 8
                                      : E == Encoding::kQ5_0 ? 16
                                      : E == Encoding::kQ6_K ? 32
                                                             : 0;
  using Scales = std::conditional_t<
      kHeader, BlockScales,
      std::conditional_t<kPairs, SubScales, std::conditional_t<kFloats, PowerScales, UnitScales<kMins>>>>;

  uint4 nibbles;
  uint2 upper;  // fifth bits in x, or bit pairs
  Scales scales;

  __device__ void load(const PackedMatrix& m, uint64_t row, uint32_t step_in_row, uint32_t t) {
    load_step(m.plane, row * ((m.columns + kStep - 1) / kStep) + step_in_row, t);
  }
  // `step`: of all steps of a matrix.
  template <class Step>
  __device__ void load_step(const PlanePointers& planes, Step step, uint32_t t) {
    nibbles = load_streaming(planes[0] + uint64_t{step} * 64 + t * 16);
    load_rest(planes, step, t);
  }
  __device__ void load_shared(const PlanePointers& planes, uint32_t step, uint32_t t) {
    nibbles = *reinterpret_cast<const uint4*>(planes[0] + step * 64 + t * 16);
    load_rest(planes, step, t);
  }
  template <class Step>
  __device__ void load_rest(const PlanePointers& planes, Step step, uint32_t t) {
    if constexpr (kFifth) upper.x = reinterpret_cast<const uint32_t*>(planes[1])[step * 4 + t];
    if constexpr (kPairs) {
      upper = reinterpret_cast<const uint2*>(planes[1])[step * 4 + t];
      scales.scales = reinterpret_cast<const uint2*>(planes[2])[step];
      scales.d = reinterpret_cast<const __half*>(planes[3])[step / 2];
    } else {
      scales.load(planes[2], step);
    }
  }

  // Pair j of unit i as it is stored, beside kMagic: in the low bits of the halves, 4 bits higher where j is odd.
  __device__ uint32_t stored(int i, int j) const {
    const uint32_t words[4] = {nibbles.x, nibbles.y, nibbles.z, nibbles.w};
    const int target = j % 2 ? 8 : 4;
    const uint32_t pair = masked_or(j < 2 ? words[i] : words[i] >> 8, 0x000f000fu << (target - 4), kMagic);
    return kFifth ? masked_or(moved(upper.x, i * 4 + j, target), 0x00010001u << target, pair) : pair;
  }
  // The 8 integers of unit i as four pairs.
  __device__ void decode(int i, [[maybe_unused]] uint32_t t, uint32_t (&pairs)[4]) const {
    if constexpr (kPairs) {
      decode_chunk_products(i, t, pairs);
    } else if constexpr (kFloats) {
      decode_small(i, pairs);
#pragma unroll
      for (uint32_t& pair : pairs) pair = half2_bits(__hmul2(half2_of(pair), half2_of(kTwoTo14)));
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        pairs[j] = half2_bits(j % 2 ? high_pair(stored(i, j), kOffset) : low_pair(stored(i, j), kOffset));
    }
  }
  // mxfp4: the numbers times 2^-14.
  __device__ void decode_small(int i, uint32_t (&pairs)[4]) const requires kFloats {
    const uint32_t words[4] = {nibbles.x, nibbles.y, nibbles.z, nibbles.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) pairs[j] = e2m1_pair_bits(words[i], j * 4);
  }
  // As they are stored, and nothing is done but to take them out: as subnormal f16, which count 2^-24, 16 times as much
  // where j is odd.
  __device__ void decode_stored(int i, uint32_t (&pairs)[4]) const requires(!kPairs && !kFloats) {
    const uint32_t words[4] = {nibbles.x, nibbles.y, nibbles.z, nibbles.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int target = j % 2 ? 8 : 4;
      pairs[j] = (j < 2 ? words[i] : words[i] >> 8) & (0x000f000fu << (target - 4));
      if constexpr (kFifth) pairs[j] = masked_or(moved(upper.x, i * 4 + j, target), 0x00010001u << target, pairs[j]);
    }
  }
  // q4_k, q5_k: the integers times `factor`, their scale of 6 bits, less than 2048: exact.
  __device__ void decode_products(int i, __half2 factor, uint32_t (&pairs)[4]) const requires kHeader {
    const __half2 less = less_1024(factor);
    const __half2 high_factor = __hmul2(factor, half2_of(both_halves(0x2c00)));  // 1/16
    const __half2 high_less = __hmul2(factor, half2_of(both_halves(0xd400)));    // -64
#pragma unroll
    for (int j = 0; j < 4; ++j)
      pairs[j] = half2_bits(__hfma2(half2_of(stored(i, j)), j % 2 ? high_factor : factor, j % 2 ? high_less : less));
  }
  // q6_k: the integers times their scale. In the bits from 4 on an f16 with bits 0x5400 counts from 64.
  __device__ void decode_chunk_products(int i, uint32_t t, uint32_t (&pairs)[4]) const requires kPairs {
    const uint32_t words[4] = {nibbles.x, nibbles.y, nibbles.z, nibbles.w};
    const __half2 scale = scales.of_chunk(i, t);
    const __half2 less = __hmul2(scale, half2_of(both_halves(0xd600)));  // 64 + 32 times
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t low = masked_or(moved(words[i], j * 4, 4), 0x00f000f0, 0x54005400);
      const uint32_t upper_bits = moved(i < 2 ? upper.x : upper.y, (i % 2 * 4 + j) * 2, 8);
      pairs[j] = half2_bits(__hfma2(half2_of(masked_or(upper_bits, 0x03000300, low)), scale, less));
    }
  }
  // `step` counts in the row, or over all rows: where it matters rows have an even number of steps.
  __device__ float scale(int i, uint32_t step) const {
    return scales.scale(i, step);
  }
  __device__ float base(int i, uint32_t step) const {
    return scales.base(i, step);
  }
};

// Units 0 and 1 in the first word, 2 and 3 in the second.
template <Encoding E>
requires(kIsBytes<E>) struct Fragment<E> {
  static constexpr bool kScaled = true, kBased = false, kHeader = false, kPairs = false;
  uint4 bytes[2];
  std::conditional_t<E == Encoding::kFP8, StepScale, UnitScales<false>> scales;

  __device__ void load(const PackedMatrix& m, uint64_t row, uint32_t step_in_row, uint32_t t) {
    load_step(m.plane, row * ((m.columns + kStep - 1) / kStep) + step_in_row, t);
  }
  __device__ void load_step(const PlanePointers& planes, uint64_t step, uint32_t t) {
#pragma unroll
    for (uint32_t w = 0; w < 2; ++w) bytes[w] = load_streaming(planes[0] + step * 128 + w * 64 + t * 16);
    scales.load(planes[2], step);
  }
  __device__ void load_shared(const PlanePointers& planes, uint32_t step, uint32_t t) {
#pragma unroll
    for (uint32_t w = 0; w < 2; ++w)
      bytes[w] = *reinterpret_cast<const uint4*>(planes[0] + step * 128 + w * 64 + t * 16);
    scales.load(planes[2], step);
  }

  __device__ void decode(int i, [[maybe_unused]] uint32_t t, uint32_t (&pairs)[4]) const {
    const uint4& two = bytes[i / 2];
    const uint32_t words[2] = {i % 2 ? two.z : two.x, i % 2 ? two.w : two.y};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (E == Encoding::kFP8) {  // by 2^-8
        pairs[j] = f8_pair_bits(j % 2 ? words[j / 2] >> 16 : words[j / 2]);
        continue;
      }
      // Bytes 128 + q, two of them beside kMagic in the low bytes of the halves.
      const uint32_t word = __byte_perm(words[j / 2] ^ 0x80808080u, kMagic, j % 2 ? 0x7372 : 0x7170);
      pairs[j] = half2_bits(low_pair(word, 128));
    }
  }
  __device__ float scale(int i, uint32_t step) const {
    return scales.scale(i, step);
  }
  __device__ float base(int, uint32_t) const {
    return 0;
  }
};

__device__ inline float2 two_floats(__half2 both) {
  return {__low2float(both), __high2float(both)};
}

// The scales and bases of units 2t and 2t + 1 of a row's block of 256 columns.
template <Encoding E>
struct TwoScales {
  float2 scale, base;

  __device__ void load(const uint8_t* plane, uint32_t block, uint32_t t) {
    if constexpr (Fragment<E>::kHeader) {
      const uint4 header = reinterpret_cast<const uint4*>(plane)[block];
      const uint32_t shift = t / 2 * 4 + t % 2 * 16, upper = header.w >> shift;
      const uint32_t scales = (header.y >> shift & 0x0f0f) | (upper & 0x0303) << 4;
      const uint32_t mins = (header.z >> shift & 0x0f0f) | (upper & 0x0c0c) << 2;
      const float2 d = two_floats(half2_of(header.x));
      scale = {d.x * byte_of(scales, 0), d.x * byte_of(scales, 1)};
      base = {-d.y * byte_of(mins, 0), -d.y * byte_of(mins, 1)};
    } else if constexpr (Fragment<E>::kBased) {
      const uint2 both = reinterpret_cast<const uint2*>(plane)[block * 4 + t];
      const float2 first = two_floats(half2_of(both.x)), second = two_floats(half2_of(both.y));
      scale = {first.x, second.x};
      base = {first.y, second.y};
    } else if constexpr (E == Encoding::kFP8) {
      const float one = reinterpret_cast<const float*>(plane)[block * 4 + t / 2 * 2];
      scale = {one, one};
    } else {
      const uint32_t two = reinterpret_cast<const uint32_t*>(plane)[block * 4 + t];
      if constexpr (E == Encoding::kMXFP4)
        scale = {__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u)};
      else
        scale = two_floats(half2_of(two));
    }
  }
};

// The small integers of unit i, in pairs, to the numbers themselves; of K blocks the products. The scale of fp8 is not
// rounded: what it is more than scale_pair is added before the sum is.
template <Encoding E>
__device__ void scale_pairs(const auto& scales, int i, uint32_t step, uint32_t (&pairs)[4]) {
  const __half2 scale = scales.scale_pair(i, step);
#pragma unroll
  for (uint32_t& pair : pairs) {
    if constexpr (Fragment<E>::kBased)
      pair = half2_bits(__hfma2(half2_of(pair), scale, scales.base_pair(i, step)));
    else if constexpr (E == Encoding::kFP8)
      pair = half2_bits(__hfma2(half2_of(pair), scale, __hmul2(half2_of(pair), scales.rest_pair(i, step))));
    else
      pair = half2_bits(__hmul2(half2_of(pair), scale));
  }
}

// The 8 numbers of unit i as four pairs.
template <Encoding E>
__device__ void decode_scaled(const Fragment<E>& fragment, int i, uint32_t t, uint32_t step, uint32_t (&pairs)[4]) {
  if constexpr (Fragment<E>::kHeader)
    fragment.decode_products(i, fragment.scales.factor_pair(i, step), pairs);
  else if constexpr (E == Encoding::kMXFP4)
    fragment.decode_small(i, pairs);
  else
    fragment.decode(i, t, pairs);
  if constexpr (Fragment<E>::kScaled) scale_pairs<E>(fragment.scales, i, step, pairs);
}

// A step of a row for decode_scaled, for which the four lanes of the row work together: of the scales of q4_k and q5_k,
// which take longer to make than 8 numbers to be taken out, each makes those of one unit. By whole warps.
template <Encoding E>
struct SharedDecode {
  uint32_t own = 0;  // the scale of 6 bits of unit t and its base, in f16

  SharedDecode() = default;
  __device__ SharedDecode(const Fragment<E>& fragment, uint32_t t, uint32_t step) {
    if constexpr (Fragment<E>::kHeader) {
      const uint4& header = fragment.scales.header;
      const KUnit unit = k_unit(header, step % 2, t);
      own = half2_bits(__floats2half2_rn(static_cast<float>(unit.scale),
                                         -__high2float(half2_of(header.x)) * static_cast<float>(unit.min)));
    }
  }
  __device__ void decode(const Fragment<E>& fragment, int i, uint32_t t, uint32_t step, uint32_t (&pairs)[4]) const {
    if constexpr (Fragment<E>::kHeader) {
      const __half2 both = half2_of(__shfl_sync(kFullMask, own, i, 4));
      fragment.decode_products(i, __low2half2(both), pairs);
      const __half2 scale = fragment.scales.scale_pair(i, step), base = __high2half2(both);
#pragma unroll
      for (uint32_t& pair : pairs) pair = half2_bits(__hfma2(half2_of(pair), scale, base));
    } else {
      decode_scaled(fragment, i, t, step, pairs);
    }
  }
};

// Bytes between vectors in shared memory that rows are multiplied with, in f16 and whole steps: half of 128 more than a
// multiple, so that neighbours stand in other banks.
__host__ __device__ inline uint32_t shared_x_stride(uint32_t columns) {
  return (columns + kStep - 1) / kStep * kStep * 2 + 64;
}

}  // namespace llmrt::cuda
