// Packed weights in shared memory (packed_matrix.h) for products of warpgroups. Of each chunk of 8 columns those take
// pair t from lane 4 * g + t, where a Fragment (dequant.cuh) has all of chunk t. So the four lanes of a row all read
// what the four chunks of its units are packed in, and each decodes its pairs: to the same bits as decode_scaled.
#pragma once

#include "backends/cuda/dequant.cuh"
#include "backends/cuda/reduce.cuh"

namespace llmrt::cuda {

// The header of a q4_k or q5_k block, of which each of the four lanes turns that of one unit into numbers.
struct SharedScales {
  __half2 units[4];  // scale of 6 bits, base
  __half2 d;

  __device__ void load(const uint8_t* plane, uint32_t step, uint32_t t) {
    BlockScales block;
    block.load(plane, step);
    d = block.scale_pair(t, step);
    const uint32_t factor = half2_bits(block.factor_pair(t, step)), base = half2_bits(block.base_pair(t, step));
    const uint32_t first = threadIdx.x % kWarp - t, mine = __byte_perm(factor, base, 0x5410);
#pragma unroll
    for (int i = 0; i < 4; ++i) units[i] = half2_of(__shfl_sync(kFullMask, mine, first + i));
  }
  __device__ __half2 scale_pair(int, uint32_t) const {
    return d;
  }
  __device__ __half2 factor_pair(int i, uint32_t) const {
    return __low2half2(units[i]);
  }
  __device__ __half2 base_pair(int i, uint32_t) const {
    return __high2half2(units[i]);
  }
};

template <Encoding E>
struct PairFragment {
  static constexpr bool kBytes = kIsBytes<E>, kUpperPairs = E == Encoding::kQ6_K;
  static constexpr bool kFifth = E == Encoding::kQ5_0 || E == Encoding::kQ5_1 || E == Encoding::kQ5_K;

  using Words = std::conditional_t<kBytes, uint4, uint2>;

  Words numbers[4];   // by chunk, those of two units
  uint32_t upper[4];  // by chunk: fifth bits, or bit pairs of two units, lane t's in the lowest place
  std::conditional_t<Fragment<E>::kHeader, SharedScales, decltype(Fragment<E>::scales)> scales;

  // What units 2 * half and the next need, beside what half 0 has brought. `numbers_at(i)`: 16 bytes number i of the
  // step in plane 0; the other planes are where the row begins, the step number `step` there.
  __device__ void load(auto numbers_at, const PlanePointers& planes, uint32_t half, uint32_t step, uint32_t t) {
#pragma unroll
    for (uint32_t c = 0; c < 4; ++c)
      numbers[c] = *reinterpret_cast<const Words*>(kBytes ? numbers_at(half * 4 + c) : numbers_at(c) + half * 8);
    if constexpr (kUpperPairs) {
#pragma unroll
      for (uint32_t c = 0; c < 4; ++c)
        upper[c] = reinterpret_cast<const uint32_t*>(planes[1])[step * 8 + 2 * c + half] >> 2 * t;
    }
    if (half != 0) return;
    if constexpr (kFifth) {
      const uint4 bits = reinterpret_cast<const uint4*>(planes[1])[step];
      const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
      for (uint32_t c = 0; c < 4; ++c) upper[c] = words[c] >> t;
    }
    if constexpr (kUpperPairs) {
      scales.scales = reinterpret_cast<const uint2*>(planes[2])[step];
      scales.d = reinterpret_cast<const __half*>(planes[3])[step / 2];
    } else if constexpr (Fragment<E>::kHeader) {
      scales.load(planes[2], step, t);
    } else {
      scales.load(planes[2], step);
    }
  }

  // Pair t of each chunk of unit u, the numbers themselves.
  __device__ void decode(uint32_t u, uint32_t t, uint32_t step, uint32_t (&pairs)[4]) const {
#pragma unroll
    for (uint32_t c = 0; c < 4; ++c) {
      const Words& words = numbers[c];
      const uint32_t word = u % 2 ? words.y : words.x;
      if constexpr (E == Encoding::kFP8) {
        const uint32_t place = 2 * t + ((2 * t + 1) << 4);
        pairs[c] = f8_pair_bits(__byte_perm(u % 2 ? words.z : words.x, u % 2 ? words.w : words.y, place));
      } else if constexpr (E == Encoding::kMXFP4) {
        // As in decode_small: the lane's nibbles go to the upper bits.
        const uint32_t high = word << (12 - 4 * t);
        pairs[c] = masked_or(high >> 3, 0x0e000e00, high & 0x80008000u);
      } else if constexpr (kBytes) {
        const uint32_t two =
            __byte_perm(u % 2 ? words.z : words.x, u % 2 ? words.w : words.y, 2 * t + ((2 * t + 1) << 8));
        pairs[c] = half2_bits(low_pair((two & 0x00ff00ff) ^ (kMagic | 0x00800080), 128));
      } else if constexpr (kUpperPairs) {
        // As in decode_chunk_products: the lane's nibbles go to the bits from 4 on.
        const uint32_t low = masked_or(__funnelshift_r(word, word, 4 * t + 28), 0x00f000f0, 0x54005400);
        const __half2 scale = scales.of_chunk(u, c), less = __hmul2(scale, half2_of(both_halves(0xd600)));
        const uint32_t bits = masked_or(moved(upper[c], u % 2 * 8, 8), 0x03000300, low);
        pairs[c] = half2_bits(__hfma2(half2_of(bits), scale, less));
      } else {
        uint32_t stored = masked_or(word >> 4 * t, 0x000f000f, kMagic);
        if constexpr (kFifth) stored = masked_or(moved(upper[c], u * 4, 4), 0x00100010, stored);
        if constexpr (Fragment<E>::kHeader) {
          const __half2 factor = scales.factor_pair(u, step);
          pairs[c] = half2_bits(__hfma2(half2_of(stored), factor, less_1024(factor)));
        } else {
          pairs[c] = half2_bits(low_pair(stored, Fragment<E>::kOffset));
        }
      }
    }
    scale_pairs<E>(scales, u, step, pairs);
  }
};

}  // namespace llmrt::cuda
