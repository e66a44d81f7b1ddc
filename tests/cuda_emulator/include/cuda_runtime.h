// What device code sees: built-in variables, vector types, barriers, warp operations, atomics. See emulator.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "cuda_runtime_api.h"
#include "launches.h"

#define __global__
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

// All threads of the warp (block) give a pointer; the last to come calls fn(pointers, count), then all go on.
void meet_warp(void* mine, void (*fn)(void** all, unsigned count));
void meet_block(void* mine, void (*fn)(void** all, unsigned count));
unsigned lane();
void meet_cluster();
int architecture();  // that the kernels are said to be compiled for
void launch(dim3 grid, dim3 block, unsigned cluster_y, size_t shared_bytes, const std::function<void()>& thread);
unsigned char* dynamic_shared();
unsigned char* cluster_shared(const void* mine, unsigned rank);  // the same place in another block of the cluster

template <class T>
struct Shuffle {
  T value, result;
  unsigned from;
};
template <class T>
T shuffle(T value, unsigned from) {
  Shuffle<T> mine{value, value, from};
  meet_warp(&mine, [](void** all, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      auto* lane = static_cast<Shuffle<T>*>(all[i]);
      if (lane->from < count) lane->result = static_cast<Shuffle<T>*>(all[lane->from])->value;
    }
  });
  return mine.result;
}

struct Vote {
  int value, any, count;
  unsigned ballot;  // of a warp
};
inline void vote(void** all, unsigned count) {
  int any = 0, sum = 0;
  unsigned ballot = 0;
  for (unsigned i = 0; i < count; ++i) {
    const bool yes = static_cast<Vote*>(all[i])->value != 0;
    any |= yes;
    sum += yes;
    ballot |= yes && i < 32 ? 1u << i : 0;
  }
  for (unsigned i = 0; i < count; ++i) {
    static_cast<Vote*>(all[i])->any = any;
    static_cast<Vote*>(all[i])->count = sum;
    static_cast<Vote*>(all[i])->ballot = ballot;
  }
}

}  // namespace emulator

inline void __syncthreads() {
  emulator::meet_block(nullptr, [](void**, unsigned) {});
}
inline int __syncthreads_or(int value) {
  emulator::Vote mine{value, 0, 0, 0};
  emulator::meet_block(&mine, emulator::vote);
  return mine.any;
}
inline int __syncthreads_count(int value) {
  emulator::Vote mine{value, 0, 0, 0};
  emulator::meet_block(&mine, emulator::vote);
  return mine.count;
}
inline void __syncwarp() {
  emulator::meet_warp(nullptr, [](void**, unsigned) {});
}
inline int __any_sync(unsigned, int value) {
  emulator::Vote mine{value, 0, 0, 0};
  emulator::meet_warp(&mine, emulator::vote);
  return mine.any;
}
inline unsigned __ballot_sync(unsigned, int value) {
  emulator::Vote mine{value, 0, 0, 0};
  emulator::meet_warp(&mine, emulator::vote);
  return mine.ballot;
}
template <class T>
T __shfl_sync(unsigned, T value, unsigned lane, unsigned width = 32) {
  return emulator::shuffle(value, emulator::lane() / width * width + lane % width);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return emulator::shuffle(value, emulator::lane() ^ static_cast<unsigned>(mask));
}
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned delta) {
  return emulator::shuffle(value, emulator::lane() - delta);  // wraps below 0: keeps its own
}
inline void __threadfence() {}

template <class T>
T atomicAdd(T* at, T value) {
  return std::exchange(*at, *at + value);
}
template <class T>
T atomicExch(T* at, T value) {
  return std::exchange(*at, value);
}
template <class T>
T atomicOr(T* at, T value) {
  return std::exchange(*at, *at | value);
}
template <class T>
T atomicMin(T* at, T value) {
  return std::exchange(*at, value < *at ? value : *at);
}
template <class T>
T atomicMax(T* at, T value) {
  return std::exchange(*at, value > *at ? value : *at);
}
template <class T>
T __ldcg(const T* at) {
  return *at;
}

template <class T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}

inline float __uint_as_float(unsigned bits) {
  return std::bit_cast<float>(bits);
}
inline unsigned __float_as_uint(float value) {
  return std::bit_cast<unsigned>(value);
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float __uint2float_rn(unsigned value) {
  return static_cast<float>(value);
}
inline float __double2float_rd(double value) {
  const float nearest = static_cast<float>(value);
  return static_cast<double>(nearest) > value ? std::nextafter(nearest, -INFINITY) : nearest;
}
inline int __ffs(int value) {
  return value == 0 ? 0 : std::countr_zero(static_cast<unsigned>(value)) + 1;
}
inline int __popc(unsigned value) {
  return std::popcount(value);
}
inline int __clz(int value) {
  return std::countl_zero(static_cast<unsigned>(value));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned select) {
  const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(bytes >> (select >> (4 * i) & 7) * 8 & 255) << (8 * i);
  return result;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}
using std::isfinite;

// ---- launching -----------------------------------------------------------------------------------------------------

enum cudaLaunchAttributeID {
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6,
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    struct {
      unsigned x, y, z;
    } clusterDim;
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...), Args&&... args) {
  const dim3 grid = config->gridDim, block = config->blockDim;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 ||
      block.x * block.y * block.z > 1024 || config->dynamicSmemBytes > 227 << 10)
    return cudaErrorInvalidValue;
  unsigned cluster_y = 1;
  bool is_dependent = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) cluster_y = config->attrs[i].val.clusterDim.y;
    if (config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization) is_dependent = true;
  }
  if (cluster_y == 0 || cluster_y > 8 || grid.y % cluster_y) return cudaErrorInvalidValue;
  emulator::tell_launch({reinterpret_cast<const void*>(kernel),
                         {grid.x, grid.y, grid.z},
                         block.x * block.y * block.z,
                         cluster_y,
                         config->dynamicSmemBytes,
                         is_dependent});
  const std::function<void()> work = [=, shared = config->dynamicSmemBytes] {
    emulator::launch(grid, block, cluster_y, shared, [&] { kernel(args...); });
  };
  emulator_enqueue(config->stream, &work);
  return cudaSuccess;
}
