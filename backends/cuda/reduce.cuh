// Reductions in a fixed order: a butterfly inside a warp, then the warps' results in order of warps. Same numbers in,
// same bits out, in every thread.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace llmrt::cuda {

inline constexpr uint32_t kWarp = 32;
inline constexpr uint32_t kFullMask = 0xffffffffu;

struct SumOf {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct MaxOf {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

__device__ inline void add_four(float4& total, const float4& more) {
  total = {total.x + more.x, total.y + more.y, total.z + more.z, total.w + more.w};
}

template <class T, class Combine>
__device__ T warp_reduce(T value, Combine combine) {
  for (uint32_t offset = kWarp / 2; offset > 0; offset /= 2)
    value = combine(value, __shfl_xor_sync(kFullMask, value, offset));
  return value;
}
__device__ inline float warp_sum(float value) {
  return warp_reduce(value, SumOf());
}
__device__ inline float warp_max(float value) {
  return warp_reduce(value, MaxOf());
}

// Sum over this lane and those before it.
template <class T>
__device__ T warp_prefix_sum(T value) {
  for (uint32_t offset = 1; offset < kWarp; offset *= 2) {
    const T other = __shfl_up_sync(kFullMask, value, offset);
    if (threadIdx.x % kWarp >= offset) value += other;
  }
  return value;
}

// Combines the values of all threads of a block (a whole number of warps), and all threads get the result. `scratch`:
// shared, one T a warp; it may be used again after the next barrier.
template <class T, class Combine>
__device__ T block_reduce(T value, Combine combine, T* scratch) {
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, num_warps = blockDim.x / kWarp;
  value = warp_reduce(value, combine);
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  value = scratch[0];
  for (uint32_t w = 1; w < num_warps; ++w) value = combine(value, scratch[w]);
  return value;
}

}  // namespace llmrt::cuda
