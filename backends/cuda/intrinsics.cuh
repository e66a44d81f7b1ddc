// Every instruction that C++ has no name for: asynchronous copies, matrix products, dependent launch. Nothing else in
// this backend is written in PTX but warpgroup.cuh.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace llmrt::cuda {

// Lets the next kernel start its blocks once all of this one's have started and there is room; they wait as below.
__device__ inline void grid_dependency_release() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Waits until the kernels before this one have ended and what they wrote is visible; both do nothing when the launch
// was an ordinary one.
__device__ inline void grid_dependency_wait() {
  grid_dependency_release();
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The same, and unless it is released the next kernel does not start before this one has ended. For kernels whose
// results are read ahead of the next kernels' waits, their threads behind a __threadfence().
__device__ inline void grid_dependency_wait_alone() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// A barrier of all threads of the cluster (of the block, where the launch had none).
__device__ inline void cluster_sync() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  __syncthreads();
#endif
}
// The number at the same place in the shared memory of block `rank` of the cluster.
__device__ inline float load_cluster(const float* shared, uint32_t rank) {
#if __CUDA_ARCH__ >= 900
  float value;
  asm volatile("{\n\t.reg .u32 at;\n\tmapa.shared::cluster.u32 at, %1, %2;\n\tld.shared::cluster.f32 %0, [at];\n\t}"
               : "=f"(value)
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))), "r"(rank)
               : "memory");
  return value;
#else
  return rank == 0 ? *shared : 0.0f;
#endif
}

// Four of them, at a multiple of 16 bytes.
__device__ inline float4 load_cluster_four(const float* shared, uint32_t rank) {
#if __CUDA_ARCH__ >= 900
  float4 v;
  asm volatile(
      "{\n\t.reg .u32 at;\n\tmapa.shared::cluster.u32 at, %4, %5;\n\t"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [at];\n\t}"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))), "r"(rank)
      : "memory");
  return v;
#else
  return rank == 0 ? *reinterpret_cast<const float4*>(shared) : float4{};
#endif
}

// 16 bytes that are read once: past the L1, so that they push nothing out. The 256 around them are wanted soon, and
// memory gives more at a time than the lanes of a row ask for.
__device__ inline uint4 load_streaming(const void* global) {
  uint4 v;
#if __CUDA_ARCH__ >= 800
#define LLMRT_LOAD_STREAMING "ld.global.nc.L1::no_allocate.L2::256B.v4.u32"
#else
#define LLMRT_LOAD_STREAMING "ld.global.nc.L1::no_allocate.L2::128B.v4.u32"
#endif
  asm volatile(LLMRT_LOAD_STREAMING " {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(global));
#undef LLMRT_LOAD_STREAMING
  return v;
}

// 16 bytes that are read once and that this kernel may write later. Other threads want the rest of their line soon.
__device__ inline float4 load_once(const float* global) {
  float4 v;
  asm volatile("ld.global.L1::no_allocate.L2::128B.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(global)
               : "memory");
  return v;
}

// 4, 8 or 16 bytes from global to shared memory, or as many zero bytes (then `global` is not read); both at multiples
// of their number. kStreams: the 256 around them are wanted soon, as with load_streaming. Before compute capability 8
// the thread waits for them here.
template <uint32_t kBytes, bool kStreams = false>
__device__ inline void copy_async(void* shared, const void* global, bool valid) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
#if __CUDA_ARCH__ >= 800
  const uint32_t target = static_cast<uint32_t>(__cvta_generic_to_shared(shared)), bytes = valid ? kBytes : 0;
  if constexpr (kBytes == 16 && kStreams)
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(target), "l"(global), "r"(bytes)
                 : "memory");
  else if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(global), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(target), "l"(global), "n"(kBytes), "r"(bytes)
                 : "memory");
#else
  using Word = std::conditional_t<kBytes == 4, uint32_t, std::conditional_t<kBytes == 8, uint2, uint4>>;
  *static_cast<Word*>(shared) = valid ? *static_cast<const Word*>(global) : Word{};
#endif
}
__device__ inline void copy_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Until at most `kPending` of this thread's newest groups are under way.
template <int kPending>
__device__ inline void copy_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

// c += a * b, 16x16 by 16x8, f16 in, f32 sums. Lane = 4 * g + t holds
//   a[0] (row g, k 2t, 2t+1)  a[1] (row g+8, same k)  a[2] (row g, k 2t+8, 2t+9)  a[3] (row g+8, same k)
//   b[0] (k 2t, 2t+1, column g)  b[1] (k 2t+8, 2t+9, column g)
//   c[0], c[1] (row g, columns 2t, 2t+1)  c[2], c[3] (row g+8, same columns)
// Before compute capability 8 it is two products of 16x8 by 8x8, whose lanes hold the same.
__device__ inline void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
#pragma unroll
  for (int i = 0; i < 2; ++i)
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[2 * i]), "r"(a[2 * i + 1]), "r"(b[i]));
#endif
}

// d = a * b: the same, from zero.
__device__ inline void mma_16x8x16_first(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %10, %10, %10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
#else
  d[0] = d[1] = d[2] = d[3] = 0;
  mma_16x8x16(d, a, b);
#endif
}

// (word & mask) | more. Written out, since of two constants the compiler makes two instructions.
__device__ inline uint32_t masked_or(uint32_t word, uint32_t mask, uint32_t more) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(more));
  return result;
}

// What comes after takes the word as it is, and does not make it again.
__device__ inline void keep_in_register(uint32_t& word) {
  asm volatile("" : "+r"(word));
}

// Two numbers of e4m3 as f16, divided by 256.
#if __CUDA_ARCH__ >= 890
__device__ inline uint32_t f8_pair_bits(uint32_t two) {
  uint32_t result;
  asm("{\n\t.reg .b32 pair;\n\tcvt.rn.f16x2.e4m3x2 pair, %1;\n\tmul.f16x2 %0, pair, %2;\n\t}"
      : "=r"(result)
      : "h"(static_cast<uint16_t>(two)), "r"(0x1c001c00u));
  return result;
}
#else
__device__ inline uint32_t f8_pair_bits(uint32_t two) {
  const uint32_t spread = __byte_perm(two, 0, 0x1404);  // each byte is the upper one
  return (spread & 0x80008000u) | (spread & 0x7f007f00u) >> 1;
}
#endif

// Transposes 8x8 pairs of bytes; lane 4 * g + t holds (row g, columns 2t, 2t+1).
__device__ inline uint32_t transpose_8x8(uint32_t pair) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

// exp(x) is 2^(kLog2E x), which is what the hardware has.
inline constexpr float kLog2E = 1.44269504f;

// 2^x, to some 22 bits; results below the normal numbers are 0.
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// log2(x) of a normal x >= 0, off by at most 2^-22 of itself and 2^-22 more; -inf for 0.
__device__ inline float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The kernel's dynamic shared memory, aligned to 16 bytes.
__device__ inline uint8_t* dynamic_shared() {
  extern __shared__ __align__(16) uint8_t dynamic_shared_bytes[];
  return dynamic_shared_bytes;
}

__device__ inline uint32_t half2_bits(__half2 v) {
  uint32_t bits;
  memcpy(&bits, &v, 4);
  return bits;
}
__device__ inline __half2 half2_of(uint32_t bits) {
  __half2 v;
  memcpy(&v, &bits, 4);
  return v;
}

}  // namespace llmrt::cuda
