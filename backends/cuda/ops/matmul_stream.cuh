// What the kernels of matmul_stream.cu (16-bit weights) and matmul_stream_packed.cu (quantised ones) have in common:
// out[r][n] = sum over k of x[r][k] * W[n][k] + bias[n] for few rows, bound by reading W once, so the copies never
// stop. A block stays on its multiprocessor and walks over slabs of 16 outputs n. Warps that copy ask for their weights
// in stages of a ring in shared memory (asynchronous bulk copies), as far ahead as there is room, also before the
// kernel that writes x has ended, and across slabs. 8 warps multiply, each its part of a stage: W is the 16x16 operand
// of the matrix units, x the 16x8 one. Another warp adds the 8 warps' sums in their order and stores them, while they
// go on with the next slab.
#pragma once

#include "backends/cuda/activation.cuh"
#include "backends/cuda/ops/matmul.h"
#include "backends/cuda/reduce.cuh"
#include "backends/cuda/warpgroup.cuh"

namespace llmrt::cuda {

inline constexpr uint32_t kStreamWarps = 8;  // that multiply
inline constexpr uint32_t kTileRows = 8;     // of x, as the matrix units have them
inline constexpr uint32_t kSlabOut = 16;

struct StreamArgs {
  PackedMatrix weight;
  const __half* x;
  const float* bias;  // or null
  std::byte* out;
  uint32_t out_stride;
  MatmulResult result;  // not kF16
  Activation activation;
  const uint32_t* live;
  RowNorm norm;
};

inline StreamArgs stream_args(const MatmulArgs& args, MatmulResult result) {
  return {args.weight,     static_cast<const __half*>(args.x),
          args.bias,       reinterpret_cast<std::byte*>(args.out),
          args.out_stride, result,
          args.activation, args.live,
          args.norm};
}

// The row of x that RowNorm makes, by the warps that multiply, to shared memory. Each thread does the work of four of
// rms_norm's threads, which have four neighbouring numbers each: sums are added in that kernel's order.
inline constexpr uint32_t kNormColumnsMax = 4096;
class NormedRow {
 public:
  // Weights never change: ahead of the wait for x.
  __device__ explicit NormedRow(const StreamArgs& args) : norm_(args.norm), columns_(args.weight.columns) {
    each([&](uint32_t i, uint32_t at) { weights_[i] = four(norm_.weight, at); });
  }
  // `scratch`: shared, of kScratch numbers; both may be used again as soon as it returns.
  static constexpr uint32_t kScratch = kNormColumnsMax / 4 / kWarp;
  __device__ void write(__half* out, float* scratch) const {
    float4 x[kThreadsOf] = {};
    each([&](uint32_t i, uint32_t at) { x[i] = four(norm_.x, at); });
#pragma unroll
    for (uint32_t i = 0; i < kThreadsOf; ++i) {
      float sum = 0;
      for (const float number : {x[i].x, x[i].y, x[i].z, x[i].w}) sum += number * number;
      sum = warp_sum(sum);
      if (threadIdx.x % kWarp == 0) scratch[i * kStreamWarps + threadIdx.x / kWarp] = sum;
    }
    named_barrier_wait(1, kThreads);
    float sum = scratch[0];
    const uint32_t num_warps = (columns_ / 4 + kWarp - 1) / kWarp;
    for (uint32_t w = 1; w < num_warps; ++w) sum += scratch[w];
    const float factor = 1.0f / sqrtf(sum / static_cast<float>(columns_) + norm_.eps);
    each([&](uint32_t i, uint32_t at) {
      const float4 &v = x[i], &w = weights_[i];
      reinterpret_cast<uint2*>(out)[at] = {half2_bits(__floats2half2_rn(v.x * factor * w.x, v.y * factor * w.y)),
                                           half2_bits(__floats2half2_rn(v.z * factor * w.z, v.w * factor * w.w))};
    });
    named_barrier_wait(1, kThreads);
  }

 private:
  static constexpr uint32_t kThreads = kStreamWarps * kWarp, kThreadsOf = kNormColumnsMax / 4 / kThreads;

  __device__ static float4 four(const float* numbers, uint32_t at) {
    return reinterpret_cast<const float4*>(numbers)[at];
  }
  // fn(number i of the four threads, its four columns' place) where there are such.
  template <class Fn>
  __device__ void each(Fn fn) const {
#pragma unroll
    for (uint32_t i = 0; i < kThreadsOf; ++i)
      if (const uint32_t at = i * kThreads + threadIdx.x; at < columns_ / 4) fn(i, at);
  }

  const RowNorm& norm_;
  uint32_t columns_;
  float4 weights_[kThreadsOf];
};

template <uint32_t kStages, uint32_t kTiles = 1>
struct StreamShared {
  float4 sums[2][kTiles][kStreamWarps][kWarp];  // of slabs in turn
  uint64_t full[kStages], free[kStages];
  uint64_t sums_full[2], sums_free[2];

  // Before there are sums.
  __device__ float* sums_scratch() {
    static_assert(sizeof(sums) >= NormedRow::kScratch * sizeof(float));
    return &sums[0][0][0][0].x;
  }

  // By one thread; `copies` arrive for a stage.
  __device__ void init(uint32_t copies) {
    for (uint32_t s = 0; s < kStages; ++s) {
      barrier_init(&full[s], copies);
      barrier_init(&free[s], kStreamWarps * kWarpArrivals);
    }
    for (uint32_t half = 0; half < 2; ++half) {
      barrier_init(&sums_full[half], kStreamWarps * kWarpArrivals);
      barrier_init(&sums_free[half], kWarpArrivals);
    }
  }
};

// A place in the ring, and how often it has gone round.
template <uint32_t kStages>
struct StreamPlace {
  uint32_t stage = 0, round = 0;

  __device__ void next() {
    if (++stage < kStages) return;
    stage = 0;
    ++round;
  }
};

__device__ inline uint32_t num_slabs_of(const StreamArgs& args) {
  return (args.weight.rows + kSlabOut - 1) / kSlabOut;
}

// The row of W that is row i of a slab: where the results go through a gated activation, 8 rows of the gate and the 8
// of the other half that belong to them. Rows past the end repeat the last one, whose sums are not stored.
__device__ inline uint32_t slab_row(const StreamArgs& args, uint32_t slab, uint32_t i) {
  if (args.result != MatmulResult::kGated) return min(slab * kSlabOut + i, args.weight.rows - 1);
  const uint32_t half = args.weight.rows / 2;
  return min(slab * 8 + i % 8, half - 1) + i / 8 * half;
}

// By each warp that multiplies: waits for what args.norm makes x of, and makes it, in shared memory.
template <uint32_t kStages, uint32_t kTiles>
__device__ void make_x(StreamShared<kStages, kTiles>& shared, const StreamArgs& args, uint32_t live, uint8_t* normed) {
  const NormedRow row(args);
  grid_dependency_wait();
  if (live > 0) row.write(reinterpret_cast<__half*>(normed), shared.sums_scratch());
}

// By each warp that multiplies: its sums of the block's slab number `count`, by tiles of rows.
template <uint32_t kStages, uint32_t kTiles>
__device__ void hand_over(StreamShared<kStages, kTiles>& shared, uint32_t count, const float4 (&sums)[kTiles]) {
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, half = count % 2;
  barrier_wait(&shared.sums_free[half], ~(count / 2) & 1);
#pragma unroll
  for (uint32_t i = 0; i < kTiles; ++i) shared.sums[half][i][warp][lane] = sums[i];
  warp_arrive(&shared.sums_full[half]);
}

// The sums of rows i and i + 8 of a slab, for row `row` of x.
__device__ inline void store_two(const StreamArgs& args, uint32_t slab, uint32_t i, uint32_t row, float first,
                                 float second) {
  const auto bias = [&](uint32_t n) { return args.bias ? args.bias[n] : 0.0f; };
  const uint64_t row_first = uint64_t{row} * args.out_stride;
  if (args.result == MatmulResult::kGated) {
    const uint32_t half = args.weight.rows / 2, n = slab * 8 + i;
    if (n >= half) return;
    const float gated = activate(args.activation, first + bias(n)) * (second + bias(n + half));
    reinterpret_cast<__half*>(args.out)[row_first + n] = __float2half_rn(gated);
    return;
  }
  const auto store = [&](uint32_t n, float sum) {
    if (n >= args.weight.rows) return;
    float* out = reinterpret_cast<float*>(args.out) + row_first + n;
    *out = sum + bias(n) + (args.result == MatmulResult::kAdded ? *out : 0.0f);
  };
  store(slab * kSlabOut + i, first);
  store(slab * kSlabOut + i + 8, second);
}

// Lane 4 * g + t has rows 2t and 2t + 1 of each tile, of outputs g and g + 8 of a slab.
template <uint32_t kStages, uint32_t kTiles>
__device__ void store_slabs(StreamShared<kStages, kTiles>& shared, const StreamArgs& args, uint32_t live) {
  const uint32_t lane = threadIdx.x % kWarp, g = lane / 4, row = lane % 4 * 2, num_slabs = num_slabs_of(args);
  uint32_t count = 0;
  for (uint32_t slab = blockIdx.x; slab < num_slabs; slab += gridDim.x, ++count) {
    const uint32_t half = count % 2;
    barrier_wait(&shared.sums_full[half], count / 2 & 1);
    float4 totals[kTiles] = {};
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) {
#pragma unroll
      for (uint32_t w = 0; w < kStreamWarps; ++w) add_four(totals[i], shared.sums[half][i][w][lane]);
    }
    warp_arrive(&shared.sums_free[half]);
#pragma unroll
    for (uint32_t i = 0; i < kTiles; ++i) {
      const uint32_t first = i * kTileRows + row;
      if (first < live) store_two(args, slab, g, first, totals[i].x, totals[i].z);
      if (first + 1 < live) store_two(args, slab, g, first + 1, totals[i].y, totals[i].w);
    }
  }
}

}  // namespace llmrt::cuda
