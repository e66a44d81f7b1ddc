// Ranking logits inside one block: the order (larger logit first, then lower id), a histogram that finds a threshold, a
// sort of the candidates above it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backends/cuda/reduce.cuh"

namespace llmrt::cuda {

inline constexpr uint32_t kRankThreads = 1024;

// Unsigned numbers in the order of the floats; both zeros are one number.
__device__ inline uint32_t ordered(float logit) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline float from_ordered(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// Larger is better: by logit, then by lower id.
using Rank = unsigned long long;
__device__ inline Rank rank_of(float logit, uint32_t id) {
  return static_cast<Rank>(ordered(logit)) << 32 | ~id;
}
__device__ inline float logit_of(Rank rank) {
  return from_ordered(static_cast<uint32_t>(rank >> 32));
}
__device__ inline uint32_t id_of(Rank rank) {
  return ~static_cast<uint32_t>(rank);
}

// A histogram of logits in bins of 1/16 from -128 to 128; what is beyond falls into the outermost bins.
inline constexpr uint32_t kBins = 4096;
__device__ inline uint32_t bin_of(float logit) {
  return static_cast<uint32_t>(fminf(fmaxf(floorf(logit * 16.0f) + kBins / 2, 0.0f), kBins - 1.0f));
}

// Sum over this thread and those before it. `scratch`: shared, one T a warp; may be used again after the next barrier.
template <class T>
__device__ T block_prefix_sum(T value, T* scratch) {
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  value = warp_prefix_sum(value);
  if (lane == kWarp - 1) scratch[warp] = value;
  __syncthreads();
  T before = 0;
  for (uint32_t w = 0; w < warp; ++w) before += scratch[w];
  return before + value;
}

// Best first, in place; `capacity` is a power of two, unused places hold 0. Ends with a barrier.
__device__ inline void sort_ranks(Rank* ranks, uint32_t capacity) {
  for (uint32_t size = 2; size <= capacity; size *= 2) {
    for (uint32_t stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      for (uint32_t i = threadIdx.x; i < capacity / 2; i += blockDim.x) {
        const uint32_t low = i / stride * stride * 2 + i % stride, high = low + stride;
        const bool descending = (low & size) == 0;
        const Rank a = ranks[low], b = ranks[high];
        if ((a < b) == descending) {
          ranks[low] = b;
          ranks[high] = a;
        }
      }
    }
  }
  __syncthreads();
}

}  // namespace llmrt::cuda
