// matmul for up to 64 rows: out[r][n] = sum over k of x[r][k] * W[n][k] + bias[n]; x f16 [rows, K], W [N, K] packed,
// out f32.
//
// A block makes 128 outputs n of 8 * kTiles rows. Its 4 warps take 32 outputs each and walk the same steps of 128
// columns; weights go from global memory straight into registers, one step ahead, and are used for every row (16-bit
// ones take the place of those just used, others, a quarter as many, wait in registers of their own); x goes
// through a ring of 3 stages in shared memory, whose rows are 64 bytes off each other's banks, so that reads do not
// collide. W is the 16x16 operand of the matrix units, in f16 (dequant.cuh), x the 16x8 one; sums in f32.
//
// Where N alone gives too few blocks for the device, the steps are split between the blocks of a cluster, which then
// read each other's sums from shared memory, each adding its share of the rows, in the order of the splits. In a
// batch-invariant list the number of splits is that of the fewest rows: then every row's sum is made in one order,
// however many rows there are.
#include "backends/cuda/dequant.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/matmul.h"
#include "backends/cuda/reduce.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kWarps = 4, kThreads = kWarps * kWarp;
constexpr uint32_t kWarpOut = 32, kTileOut = kWarps * kWarpOut;
constexpr uint32_t kStages = 3;
constexpr uint32_t kStepWords = kStep / 8;      // of 16 bytes in a row of x
constexpr uint32_t kRowWords = kStepWords + 4;  // 320 bytes
constexpr uint32_t kSumStride = kTileOut + 4;   // a row of sums; 4 keep rows of one warp in different banks

struct Args {
  PackedMatrix weight;
  const __half* x;
  const float* bias;
  float* out;
  uint32_t out_stride;
  const uint32_t* live;
};

// Starts the copy of step `step` of x; rows that are not live and columns past the end become zeros.
template <int kTiles>
__device__ void copy_x(uint4* stage, const Args& args, uint32_t row_first, uint32_t live, uint32_t step) {
  for (uint32_t i = threadIdx.x; i < kTiles * 8 * kStepWords; i += kThreads) {
    const uint32_t row = i / kStepWords, word = i % kStepWords, column = step * kStep + word * 8;
    const bool inside = row_first + row < live && column < args.weight.columns;
    const __half* from = args.x + (inside ? uint64_t{row_first + row} * args.weight.columns + column : 0);
    copy_async<16>(stage + row * kRowWords + word, from, inside);
  }
}

// The two 16-row tiles of a warp, one step: sums += W * x. used(i): unit i of all rows is no longer needed.
template <Encoding E, int kTiles, class Used>
__device__ void multiply(float (&sums)[2][kTiles][4], const Fragment<E> (&rows)[4], const uint4* stage, uint32_t step,
                         uint32_t g, uint32_t t, Used used) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t w[4][4];
#pragma unroll
    for (int r = 0; r < 4; ++r) decode_scaled(rows[r], i, t, step, w[r]);
    used(i);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint4 x = stage[(tile * 8 + g) * kRowWords + i * 4 + t];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const uint32_t(&up)[4] = w[2 * m], (&low)[4] = w[2 * m + 1];
        mma_16x8x16(sums[m][tile], {up[0], low[0], up[1], low[1]}, {x.x, x.y});
        mma_16x8x16(sums[m][tile], {up[2], low[2], up[3], low[3]}, {x.z, x.w});
      }
    }
  }
}

// The block's sums into shared memory, [row][n].
template <int kTiles>
__device__ void put_sums(const float (&sums)[2][kTiles][4], float* shared) {
  const uint32_t warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int c = 0; c < 4; ++c)
        shared[(tile * 8 + 2 * t + c % 2) * kSumStride + warp * kWarpOut + m * 16 + c / 2 * 8 + g] = sums[m][tile][c];
}

// Adds the splits in order and stores: split s of the cluster takes rows s, s + gridDim.y, ...
template <int kTiles>
__device__ void store_sums(const float* shared, const Args& args, uint32_t out_first, uint32_t row_first,
                           uint32_t live) {
  const uint32_t n = out_first + threadIdx.x;  // one thread a column of the tile
  static_assert(kThreads == kTileOut);
  for (uint32_t row = blockIdx.y; row < kTiles * 8 && row_first + row < live; row += gridDim.y) {
    float parts[kSplitsMax], total = 0;  // asked for together
#pragma unroll
    for (uint32_t split = 0; split < kSplitsMax; ++split)
      if (split < gridDim.y) parts[split] = load_cluster(shared + row * kSumStride + threadIdx.x, split);
#pragma unroll
    for (uint32_t split = 0; split < kSplitsMax; ++split)
      if (split < gridDim.y) total += parts[split];
    if (n < args.weight.rows)
      args.out[uint64_t{row_first + row} * args.out_stride + n] = total + (args.bias ? args.bias[n] : 0.0f);
  }
}

template <Encoding E, int kTiles>
__global__ void __launch_bounds__(kThreads, E == Encoding::kF16 && kTiles <= 4 ? 3 : 0)
    matmul_skinny_kernel(Args args) {
  uint4* stages = reinterpret_cast<uint4*>(dynamic_shared());
  constexpr uint32_t kStageWords = kTiles * 8 * kRowWords;
  const uint32_t warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  const uint32_t out_first = blockIdx.x * kTileOut, row_first = blockIdx.z * kTiles * 8;
  const uint32_t num_steps = (args.weight.columns + kStep - 1) / kStep;
  // gridDim.y is the cluster's size.
  const uint32_t begin = num_steps * blockIdx.y / gridDim.y, end = num_steps * (blockIdx.y + 1) / gridDim.y;

  // Rows g, g + 8, g + 16, g + 24 of the warp; past the end the last row again, whose sums are not stored.
  grid_dependency_release();
  uint64_t rows[4];
  Fragment<E> current[4];
  [[maybe_unused]] Fragment<E> next[4];
#pragma unroll
  for (uint32_t r = 0; r < 4; ++r) {
    rows[r] = min(out_first + warp * kWarpOut + r * 8 + g, args.weight.rows - 1);
    current[r].load(args.weight, rows[r], begin, t);
  }
  const uint32_t live = *args.live;
  grid_dependency_wait();         // the weights above never change
  if (row_first >= live) return;  // the whole cluster

#pragma unroll
  for (uint32_t s = 0; s < kStages - 1; ++s) {
    if (begin + s < end) copy_x<kTiles>(stages + s * kStageWords, args, row_first, live, begin + s);
    copy_async_commit();
  }
  float sums[2][kTiles][4] = {};
  for (uint32_t step = begin; step < end; ++step) {
    copy_async_wait<kStages - 2>();
    __syncthreads();  // this step's stage is full, and everyone has left the one that is filled next
    const uint32_t later = step + kStages - 1;
    if (later < end) copy_x<kTiles>(stages + (later - begin) % kStages * kStageWords, args, row_first, live, later);
    copy_async_commit();
    const uint4* stage = stages + (step - begin) % kStages * kStageWords;
    if constexpr (E == Encoding::kF16) {
      multiply<E, kTiles>(sums, current, stage, step, g, t, [&](uint32_t i) {
        if (step + 1 == end) return;
#pragma unroll
        for (int r = 0; r < 4; ++r) current[r].load_unit(args.weight, rows[r], step + 1, i, t);
      });
    } else {
      if (step + 1 < end) {
#pragma unroll
        for (int r = 0; r < 4; ++r) next[r].load(args.weight, rows[r], step + 1, t);
      }
      multiply<E, kTiles>(sums, current, stage, step, g, t, [](uint32_t) {});
#pragma unroll
      for (int r = 0; r < 4; ++r) current[r] = next[r];
    }
  }

  float* shared = reinterpret_cast<float*>(stages);
  __syncthreads();  // the last stages have been read
  put_sums<kTiles>(sums, shared);
  cluster_sync();
  store_sums<kTiles>(shared, args, out_first, row_first, live);
  cluster_sync();  // nobody leaves while others read its sums
}

template <int kTiles>
constexpr uint32_t kSharedBytes = kStages* kTiles * 8 * kRowWords * 16;

template <Encoding E, int kTiles>
Status launch_tiles(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at) {
  static_assert(kSharedBytes<kTiles> >= kTiles * 8 * kSumStride * 4);
  const Args kernel_args{args.weight, static_cast<const __half*>(args.x), args.bias, args.out, args.out_stride,
                         args.live};
  return launch(at, choice, matmul_skinny_kernel<E, kTiles>, kernel_args);
}

}  // namespace

void lay_out_skinny(const MatmulShape& shape, const CompileInputs& inputs, MatmulChoice* choice) {
  const uint32_t columns = ceil_div(shape.weight.rows, kTileOut);
  const uint32_t row_tiles = ceil_div(shape.num_rows, choice->tile_rows);
  const uint32_t wanted = inputs.device.has_clusters ? inputs.device.num_sms * inputs.tuning.skinny_blocks_sm : 0;
  choice->splits = num_splits(shape.weight.columns, columns * (shape.batch_invariant ? 1 : row_tiles), wanted);
  choice->grid = {columns, choice->splits, row_tiles};
  choice->threads = kThreads;
  choice->shared_bytes = kSharedBytes<1> * (choice->tile_rows / 8);
  choice->cluster = choice->splits;
  choice->stages = kStages;
}

Status matmul_skinny(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at) {
  return with_encoding(args.weight.encoding, [&]<Encoding E>() {
    if (choice.tile_rows == 16) return launch_tiles<E, 2>(choice, args, at);
    if (choice.tile_rows == 32) return launch_tiles<E, 4>(choice, args, at);
    return launch_tiles<E, 8>(choice, args, at);
  });
}

}  // namespace llmrt::cuda
