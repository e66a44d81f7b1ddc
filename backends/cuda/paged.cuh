// The KV cache as attention kernels see it (core/kv/kv_format.h), and the arithmetic that both of them share.
//
// Numbers of any pool dtype are multiplied in f16: 8-bit ones exactly, bf16 exactly but beyond 65,504 (then inf, and
// the row's logits are flagged as not finite). Scales are applied in f32: those of vectors to the scores for keys and
// to the weights for values, those of blocks to the numbers.
//
// Lane 4 * g + t. Scores and outputs are 16 query rows by 8 columns a tile: rows g and g + 8. A lane reads vectors in
// words of 8 dims. For scores it takes words 4 * i + t of key g of a tile: the order of dims does not matter as long as
// q is read in the same places. For outputs it takes word 8 * h + g of keys 2t, 2t + 1, 2t + 8 and 2t + 9; tile d of
// half h is made of dim d of each word, so column n of that tile is dim 64 * h + 8 * n + d.
#pragma once

#include <cuda_bf16.h>

#include <bit>

#include "backends/cuda/dequant.cuh"
#include "backends/cuda/op_context.h"
#include "backends/cuda/reduce.cuh"

namespace llmrt::cuda {

// One layer of a pool, and the block tables. Passed to kernels by value.
struct KvLayer {
  const uint8_t* data = nullptr;
  const float* scales = nullptr;  // null: none, or fp8-tensor
  float value_scale = 1;          // of fp8-tensor; that of keys is in the scale of scores
  const int32_t* tables = nullptr;
  uint32_t blocks_row_max = 0, num_blocks = 0;
  uint32_t num_kv_heads = 0, head_dim = 0;
  uint32_t block_shift = 0;  // log2 of the tokens in a block

  uint64_t num_vectors() const { return uint64_t{num_blocks} * 2 * num_kv_heads << block_shift; }

  // The vectors of tokens [token, end of its block) of a slot follow each other from here on; -1: no such block.
  __device__ int64_t vector_index(uint32_t slot, uint32_t token, uint32_t which, uint32_t head) const {
    const uint32_t entry = token >> block_shift;
    if (entry >= blocks_row_max) return -1;
    return vector_in(tables[uint64_t{slot} * blocks_row_max + entry], token, which, head);
  }
  __device__ int64_t vector_in(int32_t block, uint32_t token, uint32_t which, uint32_t head) const {
    if (block < 0 || static_cast<uint32_t>(block) >= num_blocks) return -1;
    const uint64_t run = (uint64_t{static_cast<uint32_t>(block)} * 2 + which) * num_kv_heads + head;
    return static_cast<int64_t>((run << block_shift) + (token & ((1u << block_shift) - 1)));
  }
};

inline uint32_t block_shift_of(const KvGroup& group) {
  return static_cast<uint32_t>(std::countr_zero(group.block_tokens));
}

// One layer of a pool of latents, a vector a token, and the block tables. Passed to kernels by value.
struct LatentCache {
  const uint8_t* data = nullptr;  // [block][token][row_dim]
  const float* scales = nullptr;  // null: none, or fp8-tensor
  const int32_t* tables = nullptr;
  uint32_t blocks_row_max = 0, num_blocks = 0, block_shift = 0;

  // Where a slot's token lies, in vectors; -1: no such block.
  __device__ int32_t vector_of(uint32_t slot, uint32_t token) const {
    const uint32_t entry = token >> block_shift;
    if (entry >= blocks_row_max) return -1;
    const int32_t block = tables[uint64_t{slot} * blocks_row_max + entry];
    if (block < 0 || static_cast<uint32_t>(block) >= num_blocks) return -1;
    return static_cast<int32_t>((static_cast<uint32_t>(block) << block_shift) + (token & ((1u << block_shift) - 1)));
  }
};
inline LatentCache latent_cache(uint32_t kv_group, uint32_t layer, const OpContext& at) {
  const KvPool& pool = at.pools[kv_group];
  return {reinterpret_cast<const uint8_t*>(pool.device.data + layer * pool.device.layer_bytes),
          pool.device.scales ? pool.device.scales + layer * pool.device.layer_scales : nullptr,
          at.rows.tables_of(kv_group),
          at.rows.blocks_row_max,
          pool.group.num_blocks,
          block_shift_of(pool.group)};
}

// Kernels know fp8-tensor as kF8 without a plane of scales.
template <KvDType D>
inline constexpr uint32_t kKvBytes = kv_element_bytes(D);
template <KvDType D>
inline constexpr bool kBlockScales = kv_has_block_scales(D);
template <KvDType D>
inline constexpr bool kVectorScales = kKvBytes<D> == 1 && !kBlockScales<D>;
template <KvDType D>
__device__ uint32_t scales_of_vector(const KvLayer& kv) {
  return kBlockScales<D> ? kv.head_dim / kKvScaleBlock : 1;
}
// What a decoded number of 1 stands for: bits of e4m3 are read as those of f16, whose exponent is 8 greater.
template <KvDType D>
inline constexpr float kKvUnit = kv_is_f8(D) ? 256.0f : 1.0f;

// 8 numbers of a vector as they are stored.
template <KvDType D>
using KvBits = std::conditional_t<kKvBytes<D> == 1, uint2, uint4>;
template <KvDType D, bool = kBlockScales<D>>
struct KvWord {
  KvBits<D> bits;
};
template <KvDType D>
struct KvWord<D, true> {
  KvBits<D> bits;
  float factor;
};

// The word lies at `place`; `block_scales`: of the vector, where the dtype has such.
template <KvDType D>
__device__ KvWord<D> load_word(const uint8_t* vector, uint32_t place, uint32_t word, const float* block_scales) {
  KvWord<D> result{};
  result.bits = reinterpret_cast<const KvBits<D>*>(vector)[place];
  if constexpr (kBlockScales<D>) result.factor = block_scales[word / (kKvScaleBlock / 8)] * kKvUnit<D>;
  return result;
}

// As four f16 pairs, in units of kKvUnit but where there is a factor.
template <KvDType D>
__device__ void decode_word(const KvWord<D>& word, uint32_t (&pairs)[4]) {
  if constexpr (kv_is_f8(D)) {
    const uint32_t halves[2] = {word.bits.x, word.bits.y};
#pragma unroll
    for (int j = 0; j < 4; ++j) pairs[j] = f8_pair_bits(halves[j / 2] >> j % 2 * 16);
  } else if constexpr (kv_is_i8(D)) {
    const uint32_t halves[2] = {word.bits.x ^ 0x80808080u, word.bits.y ^ 0x80808080u};  // bytes 128 + q
#pragma unroll
    for (int j = 0; j < 4; ++j)
      // Beside 0x64 a byte is 1024 and itself in f16.
      pairs[j] = half2_bits(
          __hsub2(half2_of(__byte_perm(halves[j / 2], 0x64646464, j % 2 ? 0x4342 : 0x4140)), __float2half2_rn(1152)));
  } else {
    const uint32_t words[4] = {word.bits.x, word.bits.y, word.bits.z, word.bits.w};
#pragma unroll
    for (int j = 0; j < 4; ++j)
      pairs[j] =
          D == KvDType::kF16
              ? words[j]
              : half2_bits(__floats2half2_rn(__uint_as_float(words[j] << 16), __uint_as_float(words[j] & 0xffff0000)));
  }
  if constexpr (kBlockScales<D>) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const __half2 pair = half2_of(pairs[j]);
      pairs[j] = half2_bits(__floats2half2_rn(__low2float(pair) * word.factor, __high2float(pair) * word.factor));
    }
  }
}

// The weights of scaled values carry scale * kKvUnit * kValueGain, so that they are as large as the values themselves
// and f16 holds them as well as it would hold the values.
template <KvDType D>
inline constexpr float kValueGain = D == KvDType::kI8 ? 128.0f : 1.0f;

// Which keys a query row sees, and how a product becomes a score, in units of log2 e.
struct ScoreRule {
  uint32_t key_begin, key_end, window;
  float scale, soft_cap;

  __device__ bool sees(uint32_t key, uint32_t position) const {
    return key >= key_begin && key < key_end && key <= position && (window == 0 || key + window > position);
  }
  __device__ float score(float product) const {
    float s = product * scale;
    // tanh as 1 - 2 / (1 + e^2x): its error of some 1e-7 counts against 1, not against small results.
    if (soft_cap > 0) s = soft_cap * (1 - __fdividef(2, 1 + exp2_fast(s * __fdividef(2 * kLog2E, soft_cap))));
    return s * kLog2E;
  }
};

// 16 query rows: outputs not yet divided, running maximum and this lane's part of the sum, for rows g and g + 8.
template <int kDims>
struct Accumulator {
  float out[kDims / 64][8][4] = {};
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};

  // Scores of 8 * kTiles keys become weights; what is summed so far is rescaled to the new maximum.
  template <int kTiles>
  __device__ void weigh(float (&s)[kTiles][4]) {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = max[half];
#pragma unroll
      for (int j = 0; j < kTiles; ++j) most = fmaxf(most, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
      most = fmaxf(most, __shfl_xor_sync(kFullMask, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kFullMask, most, 2));
      const float base = most == -INFINITY ? 0.0f : most;  // nothing seen yet: weights are exp2(-inf) = 0
      factor[half] = exp2f(max[half] - base);
      max[half] = most;
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const float weight = exp2f(__fadd_rn(s[j][2 * half + c], -base));
          sum[half] = j + c == 0 ? fmaf(sum[half], factor[half], weight) : sum[half] + weight;
          s[j][2 * half + c] = weight;
        }
      }
    }
    if (!__any_sync(kFullMask, factor[0] != 1.0f || factor[1] != 1.0f)) return;
#pragma unroll
    for (int h = 0; h < kDims / 64; ++h)
#pragma unroll
      for (int d = 0; d < 8; ++d)
#pragma unroll
        for (int c = 0; c < 4; ++c) out[h][d][c] *= factor[c / 2];
  }

  // out += weights * values for 16 keys and half h of the dims; v: word 8 * h + g of keys 2t, 2t + 1, 2t + 8, 2t + 9.
  // With `upper` or `lower` false the lane's row g or g + 8 keeps what it has.
  template <KvDType D>
  __device__ void add_values(int h, const uint32_t (&weights)[4], const KvWord<D> (&v)[4], bool upper, bool lower) {
    float before[8][4];
#pragma unroll
    for (int d = 0; d < 8; ++d)
#pragma unroll
      for (int c = 0; c < 4; ++c) before[d][c] = out[h][d][c];
    add_values<D>(h, weights, v);
#pragma unroll
    for (int d = 0; d < 8; ++d)
#pragma unroll
      for (int c = 0; c < 4; ++c) out[h][d][c] = (c < 2 ? upper : lower) ? out[h][d][c] : before[d][c];
  }
  template <KvDType D>
  __device__ void add_values(int h, const uint32_t (&weights)[4], const KvWord<D> (&v)[4]) {
    uint32_t numbers[4][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) decode_word<D>(v[k], numbers[k]);
#pragma unroll
    for (int d = 0; d < 8; ++d) {
      // Dim d of two keys side by side.
      const uint32_t select = d % 2 ? 0x7632 : 0x5410;
      mma_16x8x16(out[h][d], weights,
                  {__byte_perm(numbers[0][d / 2], numbers[1][d / 2], select),
                   __byte_perm(numbers[2][d / 2], numbers[3][d / 2], select)});
    }
  }

  // The sums of whole rows, in every lane of the row.
  __device__ void finish_sums() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] += __shfl_xor_sync(kFullMask, sum[half], 1);
      sum[half] += __shfl_xor_sync(kFullMask, sum[half], 2);
    }
  }
};

// Scores += q * k for a tile of 8 keys and word group i: q[0], q[1] are word 4 * i + t of query rows g and g + 8.
__device__ inline void add_products(float (&s)[4], const uint4& q_upper, const uint4& q_lower, const uint32_t (&k)[4]) {
  mma_16x8x16(s, {q_upper.x, q_lower.x, q_upper.y, q_lower.y}, {k[0], k[1]});
  mma_16x8x16(s, {q_upper.z, q_lower.z, q_upper.w, q_lower.w}, {k[2], k[3]});
}

// Weights of two score tiles (16 keys) as the f16 operand of add_values.
__device__ inline void pack_weights(const float (&a)[4], const float (&b)[4], uint32_t (&weights)[4]) {
  weights[0] = half2_bits(__floats2half2_rn(a[0], a[1]));
  weights[1] = half2_bits(__floats2half2_rn(a[2], a[3]));
  weights[2] = half2_bits(__floats2half2_rn(b[0], b[1]));
  weights[3] = half2_bits(__floats2half2_rn(b[2], b[3]));
}

__device__ inline uint32_t bf16_pair_bits(float x, float y) {
  return uint32_t{__bfloat16_as_ushort(__float2bfloat16_rn(x))} | uint32_t{__bfloat16_as_ushort(__float2bfloat16_rn(y))}
                                                                      << 16;
}

// Two neighbouring outputs in the dtype of the tensor; `at` counts numbers and is even.
__device__ inline void store_two(std::byte* out, DType dtype, uint64_t at, float x, float y) {
  if (dtype == DType::kF32)
    reinterpret_cast<float2*>(out)[at / 2] = {x, y};
  else
    reinterpret_cast<uint32_t*>(out)[at / 2] =
        dtype == DType::kF16 ? half2_bits(__floats2half2_rn(x, y)) : bf16_pair_bits(x, y);
}

// Eight of them; `at` is a multiple of 8.
__device__ inline void store_eight(std::byte* out, DType dtype, uint64_t at, const float (&v)[8]) {
  if (dtype == DType::kF32) {
    float4* target = reinterpret_cast<float4*>(out) + at / 4;
    target[0] = {v[0], v[1], v[2], v[3]};
    target[1] = {v[4], v[5], v[6], v[7]};
  } else if (dtype == DType::kF16) {
    uint32_t w[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) w[j] = half2_bits(__floats2half2_rn(v[2 * j], v[2 * j + 1]));
    reinterpret_cast<uint4*>(out)[at / 8] = {w[0], w[1], w[2], w[3]};
  } else {
    uint32_t w[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) w[j] = bf16_pair_bits(v[2 * j], v[2 * j + 1]);
    reinterpret_cast<uint4*>(out)[at / 8] = {w[0], w[1], w[2], w[3]};
  }
}

}  // namespace llmrt::cuda
