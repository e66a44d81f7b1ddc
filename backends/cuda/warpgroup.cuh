// What a warpgroup (four neighbouring warps, the first a multiple of four) can do on compute capability 9.0:
// asynchronous matrix products from shared memory, barriers that are counted there, registers handed from one warpgroup
// to another. Only code for sm_90a has these instructions: kernels use them where LLMRT_SM_90A is defined, and are
// launched where OpContext::has_warpgroups.
#pragma once

#include <cstdint>

#include "backends/cuda/intrinsics.cuh"
#include "backends/cuda/row_map.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define LLMRT_SM_90A 1
#endif
#if __CUDA_ARCH__ >= 900
#define LLMRT_BULK_COPIES 1  // copy_bytes and the counted barriers, which later devices have too
#endif

namespace llmrt::cuda {

// An address of shared memory as barriers and matrix descriptors have it.
__device__ inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// The dynamic shared memory from its first multiple of 1024 bytes on. Compilers find all addresses from the one that is
// computed here, and do not compute it again in every loop.
__device__ inline uint8_t* dynamic_shared_at_1024() {
  uint32_t address = (shared_address(dynamic_shared()) + 1023) / 1024 * 1024;
  asm volatile("" : "+r"(address));
  return static_cast<uint8_t*>(__cvta_shared_to_generic(address));
}

// The same at a multiple of 128 bytes, for rings of bulk copies, which are up to a tenth slower elsewhere. What the
// kernel has beside grows by up to kCopyAlignment to get there.
inline constexpr uint32_t kCopyAlignment = 128;
__device__ inline uint8_t* dynamic_shared_for_copies() {
  extern __shared__ __align__(kCopyAlignment) uint8_t dynamic_shared_copies[];
  return dynamic_shared_copies;
}

// A number that compilers compute where this stands: neither before, nor again in every loop that has it.
__device__ inline uint32_t kept(uint32_t number) {
  asm volatile("" : "+r"(number));
  return number;
}

// A barrier in shared memory that `count` arrivals complete, again and again. Phase 0, 1, 2, ...: wait(n & 1) returns
// once phase n is complete, and must not be called after phase n + 1 is.
__device__ inline void barrier_init(uint64_t* barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}
__device__ inline void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// One arrival for what all lanes of the warp have done before. compute-sanitizer's racecheck sees what the lane that
// arrives has done and not what it waited for in __syncwarp, so in a build for it (LLMRT_RACECHECK) each lane arrives.
#if defined(LLMRT_RACECHECK)
inline constexpr uint32_t kWarpArrivals = 32;
#else
inline constexpr uint32_t kWarpArrivals = 1;
#endif
__device__ inline void warp_arrive(uint64_t* barrier) {
  __syncwarp();
  if (kWarpArrivals > 1 || threadIdx.x % 32 == 0) barrier_arrive(barrier);
}
// Arrives at the barrier in the same place of block `rank` of the cluster.
__device__ inline void barrier_arrive_at(uint64_t* barrier, uint32_t rank) {
  asm volatile(
      "{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %0, %1;\n\t"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t}" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}
// Arrives, and the phase waits for so many bytes of copies too.
__device__ inline void barrier_arrive_for_bytes(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
// Barriers that were initialised may be used by copies and by the other blocks of the cluster, behind a cluster_sync.
__device__ inline void barriers_visible() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void barrier_wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n\t.reg .pred done;\n"
      "again:\n\tmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n\t@!done bra again;\n\t}" ::"r"(
          shared_address(barrier)),
      "r"(parity)
      : "memory");
}
// The block's barriers by number, 1 to 15: waits until `threads` do.
__device__ inline void named_barrier_wait(uint32_t number, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
// What this thread has written to shared memory, or has waited for there, may be read by matrix products.
__device__ inline void shared_writes_visible() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// `bytes` from global to shared memory, all three multiples of 16; `barrier` counts them. By one thread.
__device__ inline void copy_bytes(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(shared)),
               "l"(global), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
// `row`s [row, row + RowMap's box_rows) and columns [column, column + 64) from global to shared memory, as
// product_operand wants them; zeros outside the map. `barrier` counts the bytes. With kBlocks > 1 they come to the same
// place of all blocks of the cluster, and each block's barrier counts them. By one thread.
template <uint32_t kBlocks>
__device__ inline void copy_rows(void* shared, const RowMap& map, uint32_t column, uint32_t row, uint64_t* barrier) {
  const auto* words = &map;
  if constexpr (kBlocks == 1) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            shared_address(shared)),
        "l"(words), "r"(shared_address(barrier)), "r"(column), "r"(row)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(shared)),
        "l"(words), "r"(shared_address(barrier)), "r"(column), "r"(row), "h"(static_cast<uint16_t>((1u << kBlocks) - 1))
        : "memory");
  }
}

// The same of a map of several boxes, of rows [row, row + box_rows) and columns from `column`, a multiple of 64, on. By
// one thread.
__device__ inline void copy_boxes(void* shared, const RowMap& map, uint32_t column, uint32_t row, uint64_t* barrier) {
  const auto* words = &map;
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(shared_address(shared)),
      "l"(words), "r"(shared_address(barrier)), "r"(0), "r"(row), "r"(column / 64)
      : "memory");
}
// A map that copies will use soon. By one thread.
__device__ inline void prefetch_map(const RowMap& map) {
  const auto* words = &map;
  asm volatile("prefetch.tensormap [%0];" ::"l"(words) : "memory");
}

// How many registers each thread of the warpgroup has from here on: a multiple of 8.
template <int kCount>
__device__ inline void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ inline void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

// Before the first product, and after registers that products read or add to were written by anything else.
__device__ inline void products_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most `kPending` of the newest groups are under way; `d` is what the others have summed.
template <int kPending, int kTiles>
__device__ inline void products_wait(float (&d)[kTiles][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#pragma unroll
  for (int i = 0; i < kTiles; ++i)
    asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
}

// The same, of sums that are still added to: what the older groups have read may be written over.
template <int kPending>
__device__ inline void products_wait_older() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// The second factor, in tiles of rows of 128 bytes (64 f16 each) at multiples of 1024 bytes: 16 bytes number i of row r
// stand in place i ^ (r & 7).
//   plain:      d = a * b^T, rows of b are columns of d; `start` moves by 32 bytes for 16 more of k
//   transposed: d = a * b, rows of b are 16 of k; `tile_bytes` from a tile of 64 columns to the next one
__device__ inline uint64_t product_operand(uint32_t start, uint32_t tile_bytes) {
  constexpr uint64_t kSwizzle128 = 1, kEightRows = 1024;
  return (start & 0x3ffff) >> 4 | uint64_t{tile_bytes >> 4} << 16 | (kEightRows >> 4) << 32 | kSwizzle128 << 62;
}

// The same without a tile_bytes, of sixteens of bytes from the beginning of shared memory; plain.
__device__ inline uint64_t product_operand_at(uint32_t sixteens) {
  constexpr uint32_t kUpper = (1024 >> 4) | 1u << 30;
  return uint64_t{kUpper} << 32 | sixteens;
}

// The registers of d as an asm statement's first operands, and their places in its text.
#define LLMRT_SUM(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define LLMRT_SUMS_2 LLMRT_SUM(0), LLMRT_SUM(1)
#define LLMRT_SUMS_3 LLMRT_SUMS_2, LLMRT_SUM(2)
#define LLMRT_SUMS_4 LLMRT_SUMS_3, LLMRT_SUM(3)
#define LLMRT_SUMS_5 LLMRT_SUMS_4, LLMRT_SUM(4)
#define LLMRT_SUMS_6 LLMRT_SUMS_5, LLMRT_SUM(5)
#define LLMRT_SUMS_7 LLMRT_SUMS_6, LLMRT_SUM(6)
#define LLMRT_SUMS_8 LLMRT_SUMS_7, LLMRT_SUM(7)
#define LLMRT_SUMS_14 \
  LLMRT_SUMS_8, LLMRT_SUM(8), LLMRT_SUM(9), LLMRT_SUM(10), LLMRT_SUM(11), LLMRT_SUM(12), LLMRT_SUM(13)
#define LLMRT_SUMS_16 LLMRT_SUMS_14, LLMRT_SUM(14), LLMRT_SUM(15)
#define LLMRT_SUMS_28                                                                                      \
  LLMRT_SUMS_16, LLMRT_SUM(16), LLMRT_SUM(17), LLMRT_SUM(18), LLMRT_SUM(19), LLMRT_SUM(20), LLMRT_SUM(21), \
      LLMRT_SUM(22), LLMRT_SUM(23), LLMRT_SUM(24), LLMRT_SUM(25), LLMRT_SUM(26), LLMRT_SUM(27)
#define LLMRT_PLACES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define LLMRT_PLACES_12 LLMRT_PLACES_8 ", %8, %9, %10, %11"
#define LLMRT_PLACES_16 LLMRT_PLACES_12 ", %12, %13, %14, %15"
#define LLMRT_PLACES_20 LLMRT_PLACES_16 ", %16, %17, %18, %19"
#define LLMRT_PLACES_24 LLMRT_PLACES_20 ", %20, %21, %22, %23"
#define LLMRT_PLACES_28 LLMRT_PLACES_24 ", %24, %25, %26, %27"
#define LLMRT_PLACES_32 LLMRT_PLACES_28 ", %28, %29, %30, %31"
#define LLMRT_PLACES_56                                                              \
  LLMRT_PLACES_32                                                                    \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55"
#define LLMRT_PLACES_64 LLMRT_PLACES_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define LLMRT_PLACES_112                                                             \
  LLMRT_PLACES_64                                                                    \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95" \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"

// d (+)= a * b: 64 rows by 128 or 64 columns by 16. Warp w of the four has rows 16 w and following, with a and d
// placed in its lanes as in mma_16x8x16, d in tiles of 8 columns. Runs beside what follows until products_wait.
template <bool kTransposed>
__device__ inline void warpgroup_product(float (&d)[16][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n\t.reg .pred sums;\n\tsetp.ne.b32 sums, %69, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" LLMRT_PLACES_64
      "}, {%64, %65, %66, %67}, %68, sums, 1, 1, %70;\n\t}"
      : LLMRT_SUMS_16
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)), "n"(kTransposed ? 1 : 0)
      : "memory");
}
template <bool kTransposed>
__device__ inline void warpgroup_product(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n\t.reg .pred sums;\n\tsetp.ne.b32 sums, %37, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" LLMRT_PLACES_32
      "}, {%32, %33, %34, %35}, %36, sums, 1, 1, %38;\n\t}"
      : LLMRT_SUMS_8
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)), "n"(kTransposed ? 1 : 0)
      : "memory");
}

// d += a * b^T, a in registers as above, b plain: 64 rows by 16 to 64 columns by 16.
#define LLMRT_PRODUCT(tiles, columns, places, a0, a1, a2, a3, b0)                                      \
  __device__ inline void warpgroup_product(float(&d)[tiles][4], const uint32_t(&a)[4], uint64_t b) {   \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" columns "k16.f32.f16.f16 {" LLMRT_PLACES_##places \
                 "}, {%" a0 ", %" a1 ", %" a2 ", %" a3 "}, %" b0 ", 1, 1, 1, 0;"                       \
                 : LLMRT_SUMS_##tiles                                                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                                  \
                 : "memory");                                                                          \
  }
LLMRT_PRODUCT(2, "16", 8, "8", "9", "10", "11", "12")
LLMRT_PRODUCT(3, "24", 12, "12", "13", "14", "15", "16")
LLMRT_PRODUCT(4, "32", 16, "16", "17", "18", "19", "20")
LLMRT_PRODUCT(5, "40", 20, "20", "21", "22", "23", "24")
LLMRT_PRODUCT(6, "48", 24, "24", "25", "26", "27", "28")
LLMRT_PRODUCT(7, "56", 28, "28", "29", "30", "31", "32")
LLMRT_PRODUCT(8, "64", 32, "32", "33", "34", "35", "36")
#undef LLMRT_PRODUCT

// d += a * b^T, both factors from shared memory as product_operand has the plain second one: 64 rows of a by 64 to 224
// of b, 16 of k. Otherwise as the above.
#define LLMRT_PRODUCT(tiles, columns, places, a0, b0)                                                  \
  __device__ inline void warpgroup_product(float(&d)[tiles][4], uint64_t a, uint64_t b) {              \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" columns "k16.f32.f16.f16 {" LLMRT_PLACES_##places \
                 "}, %" a0 ", %" b0 ", 1, 1, 1, 0, 0;"                                                 \
                 : LLMRT_SUMS_##tiles                                                                  \
                 : "l"(a), "l"(b)                                                                      \
                 : "memory");                                                                          \
  }
LLMRT_PRODUCT(8, "64", 32, "32", "33")
LLMRT_PRODUCT(14, "112", 56, "56", "57")
LLMRT_PRODUCT(16, "128", 64, "64", "65")
LLMRT_PRODUCT(28, "224", 112, "112", "113")
#undef LLMRT_PRODUCT

#undef LLMRT_SUM
#undef LLMRT_SUMS_2
#undef LLMRT_SUMS_3
#undef LLMRT_SUMS_4
#undef LLMRT_SUMS_5
#undef LLMRT_SUMS_6
#undef LLMRT_SUMS_7
#undef LLMRT_SUMS_8
#undef LLMRT_SUMS_14
#undef LLMRT_SUMS_16
#undef LLMRT_SUMS_28
#undef LLMRT_PLACES_8
#undef LLMRT_PLACES_12
#undef LLMRT_PLACES_16
#undef LLMRT_PLACES_20
#undef LLMRT_PLACES_24
#undef LLMRT_PLACES_28
#undef LLMRT_PLACES_32
#undef LLMRT_PLACES_56
#undef LLMRT_PLACES_64
#undef LLMRT_PLACES_112

}  // namespace llmrt::cuda
