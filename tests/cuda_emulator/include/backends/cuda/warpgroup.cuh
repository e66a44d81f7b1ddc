// Stands in for backends/cuda/warpgroup.cuh: the same functions without PTX. Products are done when they are begun.
#pragma once

#include <bit>

#include "backends/cuda/intrinsics.cuh"

#define LLMRT_SM_90A 1

namespace emulator {
void barrier_arrive(uint64_t* barrier);
void barrier_wait(const uint64_t* barrier, unsigned parity);
void meet_named(unsigned number, unsigned threads, bool waits);

struct WarpgroupProduct {
  float* d;  // [columns / 8][4]
  const uint32_t* a;
  uint64_t b;
  bool add, is_transposed;
  unsigned columns;
};
void multiply_warpgroup(const WarpgroupProduct& mine);
}  // namespace emulator

namespace llmrt::cuda {

inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(shared) - emulator::dynamic_shared());
}
// A barrier: arrivals that a phase needs, those that this phase still needs, the parity of this phase.
inline void barrier_init(uint64_t* barrier, uint32_t count) {
  *barrier = uint64_t{count} << 32 | uint64_t{count} << 1;
}
inline void barrier_arrive(uint64_t* barrier) {
  emulator::barrier_arrive(barrier);
}
inline void barrier_arrive_copied(uint64_t* barrier) {
  emulator::commit_copies();
  emulator::wait_copies(0);
  emulator::barrier_arrive(barrier);
}
inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
  emulator::barrier_wait(barrier, parity);
}
inline void named_barrier_arrive(uint32_t number, uint32_t threads) {
  emulator::meet_named(number, threads, false);
}
inline void named_barrier_wait(uint32_t number, uint32_t threads) {
  emulator::meet_named(number, threads, true);
}
inline void shared_writes_visible() {}
template <int kCount>
void more_registers() {}
template <int kCount>
void fewer_registers() {}
inline void products_begin() {}
inline void products_commit() {}
template <int kPending, int kTiles>
void products_wait(float (&)[kTiles][4]) {}

inline uint64_t product_operand(uint32_t start, uint32_t tile_bytes) {
  return (start & 0x3ffff) >> 4 | uint64_t{tile_bytes >> 4} << 16;
}
template <bool kTransposed, int kTiles>
void warpgroup_product(float (&d)[kTiles][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  emulator::multiply_warpgroup({&d[0][0], a, b, add, kTransposed, kTiles * 8});
}

}  // namespace llmrt::cuda
