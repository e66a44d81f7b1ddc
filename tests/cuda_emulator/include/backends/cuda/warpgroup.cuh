// Stands in for backends/cuda/warpgroup.cuh: the same functions without PTX. Products are done when they are begun.
#pragma once

#include <bit>

#include "backends/cuda/intrinsics.cuh"
#include "backends/cuda/row_map.h"

#define LLMRT_SM_90A 1
#define LLMRT_BULK_COPIES 1

namespace emulator {
void barrier_init(uint64_t* barrier, unsigned count);
void barrier_arrive(uint64_t* barrier);
void barrier_add_bytes(uint64_t* barrier, int bytes);
// A copy of a RowMap, of which `words` are what encode_rows of runtime.cpp has written, to `to`, whose address is `at`.
void copy_rows(unsigned char* to, unsigned at, const uint64_t* words, unsigned column, unsigned row, uint64_t* barrier);
void copy_bytes(void* to, const void* from, unsigned bytes, uint64_t* barrier);
void barrier_wait(const uint64_t* barrier, unsigned parity);
void meet_named(unsigned number, unsigned threads);

struct WarpgroupProduct {
  float* d;           // [columns / 8][4]
  const uint32_t* a;  // null: from shared memory
  uint64_t b;
  bool add, is_transposed;
  unsigned columns;
  uint64_t shared_a = 0;
};
void multiply_warpgroup(const WarpgroupProduct& mine);
}  // namespace emulator

namespace llmrt::cuda {

inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(shared) - emulator::dynamic_shared());
}
inline uint8_t* dynamic_shared_at_1024() {
  uint8_t* shared = dynamic_shared();
  return shared + (1024 - shared_address(shared) % 1024) % 1024;
}
inline constexpr uint32_t kCopyAlignment = 128;
inline uint8_t* dynamic_shared_for_copies() {
  return dynamic_shared();
}
inline void barrier_init(uint64_t* barrier, uint32_t count) {
  emulator::barrier_init(barrier, count);
}
inline void barrier_arrive(uint64_t* barrier) {
  emulator::barrier_arrive(barrier);
}
inline constexpr uint32_t kWarpArrivals = 1;
inline void warp_arrive(uint64_t* barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}
inline void barrier_arrive_at(uint64_t* barrier, uint32_t rank) {
  emulator::barrier_arrive(reinterpret_cast<uint64_t*>(emulator::cluster_shared(barrier, rank)));
}
inline void barrier_arrive_for_bytes(uint64_t* barrier, uint32_t bytes) {
  emulator::barrier_add_bytes(barrier, bytes);
  emulator::barrier_arrive(barrier);
}
inline void barriers_visible() {}
inline uint32_t kept(uint32_t number) {
  return number;
}
template <uint32_t kBlocks>
void copy_rows(void* shared, const RowMap& map, uint32_t column, uint32_t row, uint64_t* barrier) {
  for (uint32_t rank = 0; rank < kBlocks; ++rank) {
    const bool is_alone = kBlocks == 1;
    emulator::copy_rows(is_alone ? static_cast<uint8_t*>(shared) : emulator::cluster_shared(shared, rank),
                        shared_address(shared), map.words, column, row,
                        is_alone ? barrier : reinterpret_cast<uint64_t*>(emulator::cluster_shared(barrier, rank)));
  }
}
inline void copy_boxes(void* shared, const RowMap& map, uint32_t column, uint32_t row, uint64_t* barrier) {
  copy_rows<1>(shared, map, column, row, barrier);
}
inline void prefetch_map(const RowMap&) {}
inline void copy_bytes(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {
  emulator::copy_bytes(shared, global, bytes, barrier);
}
inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
  emulator::barrier_wait(barrier, parity);
}
inline void named_barrier_wait(uint32_t number, uint32_t threads) {
  emulator::meet_named(number, threads);
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
template <int kPending>
void products_wait_older() {}

inline uint64_t product_operand(uint32_t start, uint32_t tile_bytes) {
  return (start & 0x3ffff) >> 4 | uint64_t{tile_bytes >> 4} << 16;
}
inline uint64_t product_operand_at(uint32_t sixteens) {
  return product_operand(sixteens * 16, 0);
}
template <bool kTransposed, int kTiles>
void warpgroup_product(float (&d)[kTiles][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  emulator::multiply_warpgroup({&d[0][0], a, b, add, kTransposed, kTiles * 8});
}
template <int kTiles>
void warpgroup_product(float (&d)[kTiles][4], const uint32_t (&a)[4], uint64_t b) {
  emulator::multiply_warpgroup({&d[0][0], a, b, true, false, kTiles * 8});
}
template <int kTiles>
void warpgroup_product(float (&d)[kTiles][4], uint64_t a, uint64_t b) {
  emulator::multiply_warpgroup({&d[0][0], nullptr, b, true, false, kTiles * 8, a});
}

}  // namespace llmrt::cuda
