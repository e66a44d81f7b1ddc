// matmul for up to 64 rows: out[r][n] = sum over k of x[r][k] * W[n][k] + bias[n]; x f16 [rows, K], W [N, K] packed, out
// f32.
//
// A block makes 128 outputs n of 8 * kTiles rows. Its 4 warps take 32 outputs each and walk the same steps of 128
// columns; weights go from global memory straight into registers, one step ahead, and are used for every row; x goes
// through a ring of 3 stages in shared memory, where the 16 bytes that lane t needs for group i stand at place 4 * i + t,
// and rows are 64 bytes off each other's banks, so that reads do not collide. W is the 16x16 operand of the matrix
// units, x the 16x8 one; sums in f32.
//
// Where N alone gives too few blocks for the device, the steps are split between gridDim.y blocks; each writes its sums
// to the workspace and the last one to arrive adds them in order.
#include "backends/cuda/dequant.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/matmul.h"
#include "backends/cuda/reduce.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kWarps = 4, kThreads = kWarps * kWarp;
constexpr uint32_t kWarpOut = 32, kTileOut = kWarps * kWarpOut;
constexpr uint32_t kStages = 3;
constexpr uint32_t kStepWords = kStep / 8;        // of 16 bytes in a row of x
constexpr uint32_t kRowWords = kStepWords + 4;    // 320 bytes
constexpr uint32_t kSplitsMax = 16;

struct Args {
  PackedMatrix weight;
  const __half* x;
  const float* bias;
  float* out;
  uint32_t out_stride;
  uint32_t num_rows;
  const uint32_t* live;
  float* partials;     // [split][num_rows][weight.rows]
  uint32_t* counters;  // one a block column and row tile, zero between launches
};

// Starts the copy of step `step` of x; rows that are not live and columns past the end become zeros.
template <Encoding E, int kTiles>
__device__ void copy_x(uint4* stage, const Args& args, uint32_t row_first, uint32_t live, uint32_t step) {
  for (uint32_t i = threadIdx.x; i < kTiles * 8 * kStepWords; i += kThreads) {
    const uint32_t row = i / kStepWords, word = i % kStepWords, column = step * kStep + word * 8;
    const bool inside = row_first + row < live && column < args.weight.columns;
    const __half* from = args.x + (inside ? uint64_t{row_first + row} * args.weight.columns + column : 0);
    copy_async_16(stage + row * kRowWords + k_place<E>(word), from, inside);
  }
}

// The two 16-row tiles of a warp, one step: c += W * x.
template <Encoding E, int kTiles>
__device__ void multiply(float (&sums)[2][kTiles][4], const Fragment<E> (&rows)[4], const uint4* stage, uint32_t g,
                         uint32_t t) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t w[4][4];
#pragma unroll
    for (int r = 0; r < 4; ++r) rows[r].decode(i, w[r]);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint4 x = stage[(tile * 8 + g) * kRowWords + i * 4 + t];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        mma_16x8x16(sums[m][tile], {w[2 * m][0], w[2 * m + 1][0], w[2 * m][1], w[2 * m + 1][1]}, {x.x, x.y});
        mma_16x8x16(sums[m][tile], {w[2 * m][2], w[2 * m + 1][2], w[2 * m][3], w[2 * m + 1][3]}, {x.z, x.w});
      }
    }
  }
}

// fn(n, row, sum) for every sum of this lane; n and row count from the block's first.
template <int kTiles, class Fn>
__device__ void for_sums(const float (&sums)[2][kTiles][4], Fn fn) {
  const uint32_t warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int c = 0; c < 4; ++c)
        fn(warp * kWarpOut + m * 16 + c / 2 * 8 + g, tile * 8 + 2 * t + c % 2, sums[m][tile][c]);
}

// Adds the splits' sums in order; only in the last block of its column.
template <int kTiles>
__device__ void add_splits(const Args& args, uint32_t out_first, uint32_t row_first, uint32_t live) {
  const uint64_t split_stride = uint64_t{args.num_rows} * args.weight.rows;
  for (uint32_t i = threadIdx.x; i < kTileOut * kTiles * 8; i += kThreads) {
    const uint32_t n = out_first + i % kTileOut, row = row_first + i / kTileOut;
    if (n >= args.weight.rows || row >= live) continue;
    const float* partial = args.partials + uint64_t{row} * args.weight.rows + n;
    float total = args.bias ? args.bias[n] : 0.0f;
    for (uint32_t split = 0; split < gridDim.y; ++split) total += __ldcg(partial + split * split_stride);
    args.out[uint64_t{row} * args.out_stride + n] = total;
  }
}

template <Encoding E, int kTiles>
__global__ void __launch_bounds__(kThreads) matmul_skinny_kernel(Args args) {
  __shared__ bool is_last;
  uint4* stages = reinterpret_cast<uint4*>(dynamic_shared());
  constexpr uint32_t kStageWords = kTiles * 8 * kRowWords;
  const uint32_t warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  const uint32_t out_first = blockIdx.x * kTileOut, row_first = blockIdx.z * kTiles * 8;
  const uint32_t num_steps = (args.weight.columns + kStep - 1) / kStep;
  const uint32_t begin = num_steps * blockIdx.y / gridDim.y, end = num_steps * (blockIdx.y + 1) / gridDim.y;

  // Rows g, g + 8, g + 16, g + 24 of the warp; past the end the last row again, whose sums are not stored.
  uint64_t rows[4];
  Fragment<E> current[4], next[4];
#pragma unroll
  for (uint32_t r = 0; r < 4; ++r) {
    rows[r] = min(out_first + warp * kWarpOut + r * 8 + g, args.weight.rows - 1);
    current[r].load(args.weight, rows[r], begin, t);
  }
  grid_dependency_wait();  // the weights above never change
  const uint32_t live = *args.live;
  if (row_first >= live) return;

#pragma unroll
  for (uint32_t s = 0; s < kStages - 1; ++s) {
    if (begin + s < end) copy_x<E, kTiles>(stages + s * kStageWords, args, row_first, live, begin + s);
    copy_async_commit();
  }
  float sums[2][kTiles][4] = {};
  for (uint32_t step = begin; step < end; ++step) {
    copy_async_wait<kStages - 2>();
    __syncthreads();  // this step's stage is full, and everyone has left the one that is filled next
    const uint32_t later = step + kStages - 1;
    if (later < end)
      copy_x<E, kTiles>(stages + (later - begin) % kStages * kStageWords, args, row_first, live, later);
    copy_async_commit();
    if (step + 1 < end) {
#pragma unroll
      for (int r = 0; r < 4; ++r) next[r].load(args.weight, rows[r], step + 1, t);
    }
    multiply<E, kTiles>(sums, current, stages + (step - begin) % kStages * kStageWords, g, t);
#pragma unroll
    for (int r = 0; r < 4; ++r) current[r] = next[r];
  }

  if (gridDim.y == 1) {
    for_sums<kTiles>(sums, [&](uint32_t n, uint32_t row, float sum) {
      n += out_first;
      row += row_first;
      if (n < args.weight.rows && row < live)
        args.out[uint64_t{row} * args.out_stride + n] = sum + (args.bias ? args.bias[n] : 0.0f);
    });
    return;
  }
  float* mine = args.partials + blockIdx.y * uint64_t{args.num_rows} * args.weight.rows;
  for_sums<kTiles>(sums, [&](uint32_t n, uint32_t row, float sum) {
    n += out_first;
    row += row_first;
    if (n < args.weight.rows && row < live) mine[uint64_t{row} * args.weight.rows + n] = sum;
  });
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t* counter = args.counters + blockIdx.z * gridDim.x + blockIdx.x;
    is_last = atomicAdd(counter, 1u) == gridDim.y - 1;
    if (is_last) *counter = 0;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  add_splits<kTiles>(args, out_first, row_first, live);
}

// How many blocks share the columns of an output tile: enough to fill the device, none without work.
uint32_t num_splits(const MatmulArgs& args, uint32_t blocks, const OpContext& at) {
  constexpr uint32_t kBlocksPerSm = 2, kStepsMin = 2;
  const uint32_t num_steps = ceil_div(args.weight.columns, kStep);
  const uint32_t wanted = static_cast<uint32_t>(at.num_sms) * kBlocksPerSm / blocks;  // no second wave
  const uint64_t split_bytes = uint64_t{args.num_rows} * args.weight.rows * 4;
  const uint32_t held = static_cast<uint32_t>(std::min<uint64_t>(at.workspace.bytes / split_bytes, kSplitsMax));
  return std::max(1u, std::min({wanted, num_steps / kStepsMin, held}));
}

template <Encoding E, int kTiles>
Status launch_tiles(const MatmulArgs& args, const OpContext& at) {
  const uint32_t columns = ceil_div(args.weight.rows, kTileOut), row_tiles = ceil_div(args.num_rows, kTiles * 8u);
  uint32_t splits = num_splits(args, columns * row_tiles, at);
  if (columns * row_tiles > at.workspace.num_counters) splits = 1;
  const Args kernel_args{args.weight,   static_cast<const __half*>(args.x),           args.bias,
                         args.out,      args.out_stride,                              args.num_rows,
                         args.live,     reinterpret_cast<float*>(at.workspace.data), at.workspace.counters};
  const Grid grid{dim3(columns, splits, row_tiles), kThreads, kStages * kTiles * 8 * kRowWords * 16};
  return launch(at, "matmul_skinny", matmul_skinny_kernel<E, kTiles>, grid, kernel_args);
}

}  // namespace

Status matmul_skinny(const MatmulArgs& args, const OpContext& at) {
  return with_encoding(args.weight.encoding, [&]<Encoding E>() {
    if (args.num_rows <= 16) return launch_tiles<E, 2>(args, at);
    if (args.num_rows <= 32) return launch_tiles<E, 4>(args, at);
    return launch_tiles<E, 8>(args, at);
  });
}

}  // namespace llmrt::cuda
