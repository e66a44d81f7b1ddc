// Stands in for backends/cuda/intrinsics.cuh: the same functions without PTX.
#pragma once

#include <cuda_fp16.h>

namespace emulator {
// Copies that a thread has started: done when it waits for them, not before.
void start_copy(void* to, const void* from, unsigned bytes, bool valid);
void commit_copies();
void wait_copies(int pending);

struct Product {
  float* c;
  const uint32_t *a, *b;
};
void multiply(void** lanes, unsigned count);
void transpose_8x8(void** lanes, unsigned count);
}  // namespace emulator

namespace llmrt::cuda {

inline void grid_dependency_wait() {}
inline void grid_dependency_wait_alone() {}
inline void grid_dependency_release() {}

inline uint4 load_streaming(const void* global) {
  return *static_cast<const uint4*>(global);
}
inline float4 load_once(const float* global) {
  return *reinterpret_cast<const float4*>(global);
}
template <unsigned kBytes, bool kStreams = false>
void copy_async(void* shared, const void* global, bool valid) {
  emulator::start_copy(shared, global, kBytes, valid);
}
inline void copy_async_commit() {
  emulator::commit_copies();
}
template <int kPending>
void copy_async_wait() {
  emulator::wait_copies(kPending);
}
inline void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  emulator::Product mine{c, a, b};
  emulator::meet_warp(&mine, emulator::multiply);
}
inline void mma_16x8x16_first(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  d[0] = d[1] = d[2] = d[3] = 0;
  mma_16x8x16(d, a, b);
}
inline uint32_t masked_or(uint32_t word, uint32_t mask, uint32_t more) {
  return (word & mask) | more;
}
inline void keep_in_register(uint32_t&) {}
inline uint32_t f8_pair_bits(uint32_t two) {
  const uint32_t spread = __byte_perm(two, 0, 0x1404);
  return (spread & 0x80008000u) | (spread & 0x7f007f00u) >> 1;
}
inline uint32_t transpose_8x8(uint32_t pair) {
  emulator::meet_warp(&pair, emulator::transpose_8x8);
  return pair;
}
inline void cluster_sync() {
  emulator::meet_cluster();
}
inline float load_cluster(const float* shared, uint32_t rank) {
  if (rank > 0 && emulator::architecture() < 90) return 0;
  return *reinterpret_cast<const float*>(emulator::cluster_shared(shared, rank));
}
inline float4 load_cluster_four(const float* shared, uint32_t rank) {
  if (rank > 0 && emulator::architecture() < 90) return {};
  return *reinterpret_cast<const float4*>(emulator::cluster_shared(shared, rank));
}
inline uint8_t* dynamic_shared() {
  return emulator::dynamic_shared();
}
inline constexpr float kLog2E = 1.44269504f;
inline float exp2_fast(float x) {
  return exp2f(x);
}
inline float log2_fast(float x) {
  return log2f(x);
}
inline uint32_t half2_bits(__half2 v) {
  return std::bit_cast<uint32_t>(v);
}
inline __half2 half2_of(uint32_t bits) {
  return std::bit_cast<__half2>(bits);
}

}  // namespace llmrt::cuda
