// matmul of quantised weights for 9 to 32 rows on compute capability 9.0, by the products of warpgroups: out[r][n] =
// sum over k of x[r][k] * W[n][k] + bias[n]; x f16 [rows, K], W [N, K] packed.
//
// A block makes 128 outputs n of kColumns rows. Two warpgroups multiply, each 64 outputs: W is the first factor,
// decoded to f16 in registers (dequant.cuh), straight from global memory and a step of 128 columns ahead; x is the
// second, from a ring in shared memory that a third warpgroup fills. The chunks of 8 columns that a lane decodes are
// not the columns that a product takes from that lane: within each unit of 32 columns, pair j of chunk t is where a
// product wants pair t of chunk j, so x is copied that way round. While a unit is multiplied, the next one is decoded.
//
// Where N alone gives too few blocks for the device, the steps are split between the blocks of a cluster, which then
// read each other's sums from shared memory, each adding its share of the rows, in the order of the splits.
#include <algorithm>

#include "backends/cuda/dequant.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/matmul.h"
#include "backends/cuda/reduce.cuh"
#include "backends/cuda/warpgroup.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kGroupThreads = 128, kConsumers = 2, kThreads = (1 + kConsumers) * kGroupThreads;
constexpr int kColumns = 32;     // rows of x: columns of a product
constexpr uint32_t kStages = 4;  // of x
constexpr uint32_t kBlockOut = kConsumers * 64;
constexpr uint32_t kSumStride = kBlockOut + 4;  // 4 keep rows of one warp in different banks

struct Args {
  PackedMatrix weight;
  const __half* x;
  const float* bias;
  std::byte* out;
  uint32_t out_stride;
  bool in_fours;  // of outputs, 16 bytes of f32, are stored at once
  MatmulResult result;
  const uint32_t* live;
};

constexpr uint32_t kHalfBytes = kColumns * 128;  // 64 columns of a step of x
constexpr uint32_t kStageBytes = 2 * kHalfBytes;
constexpr uint32_t kSumBytes = kColumns * kSumStride * 4;
constexpr uint32_t kRingBytes = std::max(kStages * kStageBytes, kSumBytes), kBarrierBytes = kStages * 2 * 8;
// Stages stand at multiples of 1024 bytes, which dynamic shared memory need not.
constexpr uint32_t kSharedBytes = 1024 + kRingBytes + kBarrierBytes;
// So many blocks fit a multiprocessor, with these registers of a thread that copies and of one that multiplies.
constexpr int kBlocksPerSm = 2, kProducerRegisters = 56, kConsumerRegisters = 88;

// A lane's share of a step of x on its way: a warp has a unit of all rows, four lanes that of one row, each a chunk.
struct Chunks {
  uint4 words[kColumns / 8];

  __device__ static uint32_t unit() { return threadIdx.x / kWarp; }
  __device__ static uint32_t row(uint32_t i) { return i * 8 + threadIdx.x % kWarp / 4; }

  // Rows that are not live and columns past the end are zeros.
  __device__ void load(const Args& args, uint32_t row_first, uint32_t live, uint32_t step) {
    const uint32_t column = step * kStep + unit() * kUnit + threadIdx.x % 4 * 8;
#pragma unroll
    for (uint32_t i = 0; i < kColumns / 8; ++i) {
      const uint64_t from = row_first + row(i);
      words[i] = from < live && column < args.weight.columns
                     ? *reinterpret_cast<const uint4*>(args.x + from * args.weight.columns + column)
                     : uint4{};
    }
  }
  __device__ void store(uint8_t* stage) const {
    uint8_t* half = stage + unit() / 2 * kHalfBytes;
#pragma unroll
    for (uint32_t i = 0; i < kColumns / 8; ++i) {
      const uint32_t pairs[4] = {words[i].x, words[i].y, words[i].z, words[i].w};
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) {
        const uint32_t place = (unit() % 2 * 4 + j) ^ row(i) % 8;
        *reinterpret_cast<uint32_t*>(half + row(i) * 128 + place * 16 + threadIdx.x % 4 * 4) = pairs[j];
      }
    }
  }
};

struct Ring {
  uint8_t* stages;
  uint64_t *full, *free;  // [kStages]
};

__device__ void fill_ring(const Ring& ring, const Args& args, uint32_t row_first, uint32_t live, uint32_t begin,
                          uint32_t end) {
  constexpr uint32_t kAhead = 2;  // steps on their way
  Chunks chunks[kAhead];
#pragma unroll
  for (uint32_t i = 0; i < kAhead; ++i)
    if (begin + i < end) chunks[i].load(args, row_first, live, begin + i);
  for (uint32_t first = begin; first < end; first += kAhead) {
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t step = first + i, n = step - begin, s = n % kStages;
      if (step >= end) break;
      barrier_wait(&ring.free[s], ~(n / kStages) & 1);
      chunks[i].store(ring.stages + s * kStageBytes);
      shared_writes_visible();
      barrier_arrive(&ring.full[s]);
      if (step + kAhead < end) chunks[i].load(args, row_first, live, step + kAhead);
    }
  }
}

// A warpgroup's sums of the steps, its 64 weight rows from out_first of W on.
template <Encoding E>
__device__ void multiply(float (&sums)[kColumns / 8][4], const Ring& ring, const Args& args, uint32_t out_first,
                         uint32_t begin, uint32_t end) {
  const uint32_t g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4, warp = threadIdx.x % kGroupThreads / kWarp;
  // Rows g and g + 8 of the warp's 16; past the end the last row again, whose sums are not stored.
  const uint32_t last = args.weight.rows - 1;
  const uint64_t upper_row = min(out_first + warp * 16 + g, last), lower_row = min(out_first + warp * 16 + g + 8, last);
  Fragment<E> upper, lower, next_upper, next_lower;
  upper.load(args.weight, upper_row, begin, t);
  lower.load(args.weight, lower_row, begin, t);
  grid_dependency_wait();     // the weights above never change
  uint32_t weights[2][2][4];  // of two units
  for (uint32_t step = begin; step < end; ++step) {
    const uint32_t n = step - begin, s = n % kStages;
    if (step + 1 < end) {
      next_upper.load(args.weight, upper_row, step + 1, t);
      next_lower.load(args.weight, lower_row, step + 1, t);
    }
    const uint32_t stage = shared_address(ring.stages + s * kStageBytes);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t up[4], low[4];
      decode_scaled(upper, i, t, step, up);
      decode_scaled(lower, i, t, step, low);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        uint32_t(&a)[4] = weights[i % 2][k];
        a[0] = up[2 * k];
        a[1] = low[2 * k];
        a[2] = up[2 * k + 1];
        a[3] = low[2 * k + 1];
      }
      if (i == 0) barrier_wait(&ring.full[s], n / kStages & 1);
      const uint64_t x = product_operand(stage + i / 2 * kHalfBytes, 0);
      products_begin();
#pragma unroll
      for (int k = 0; k < 2; ++k)
        warpgroup_product<false>(sums, weights[i % 2][k], x + (i % 2 * 64 + k * 32) / 16, true);
      products_commit();
      products_wait_older<1>();  // the weights of the unit before may be written over, and its stage of x
      if (i == 0 && n > 0 && threadIdx.x % kWarp == 0) barrier_arrive(&ring.free[(n - 1) % kStages]);
    }
    upper = next_upper;
    lower = next_lower;
  }
  products_wait<0>(sums);
}

// Outputs n and the three behind it of a row, of which W has `count`.
__device__ void store(const Args& args, uint64_t row, uint32_t n, uint32_t count, float4 sums) {
  const uint64_t at = row * args.out_stride + n;
  float* out = reinterpret_cast<float*>(args.out) + at;
  __half* out_f16 = reinterpret_cast<__half*>(args.out) + at;
  if (args.bias) {
    const auto bias = [&](uint32_t i) { return i < count ? args.bias[n + i] : 0.0f; };
    sums = {sums.x + bias(0), sums.y + bias(1), sums.z + bias(2), sums.w + bias(3)};
  }
  if (args.in_fours && count == 4) {
    if (args.result == MatmulResult::kF16) {
      *reinterpret_cast<uint2*>(out_f16) = {half2_bits(__floats2half2_rn(sums.x, sums.y)),
                                            half2_bits(__floats2half2_rn(sums.z, sums.w))};
      return;
    }
    if (args.result == MatmulResult::kAdded) {
      const float4 old = *reinterpret_cast<const float4*>(out);
      sums = {sums.x + old.x, sums.y + old.y, sums.z + old.z, sums.w + old.w};
    }
    *reinterpret_cast<float4*>(out) = sums;
    return;
  }
  const float each[4] = {sums.x, sums.y, sums.z, sums.w};
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    if (i >= count) break;
    if (args.result == MatmulResult::kF16)
      out_f16[i] = __float2half_rn(each[i]);
    else
      out[i] = each[i] + (args.result == MatmulResult::kAdded ? out[i] : 0.0f);
  }
}

// Adds the splits in order and stores: split s of the cluster takes rows s, s + gridDim.y, ...
__device__ void store_sums(const float* shared, const Args& args, uint32_t out_first, uint32_t row_first,
                           uint32_t num_rows) {
  constexpr uint32_t kFours = kBlockOut / 4;
#pragma unroll 2
  for (uint32_t i = threadIdx.x;; i += kThreads) {
    const uint32_t row = i / kFours * gridDim.y + blockIdx.y, place = i % kFours * 4, n = out_first + place;
    if (row >= num_rows) break;
    if (n >= args.weight.rows) continue;
    float4 total{};
    for (uint32_t split = 0; split < gridDim.y; ++split) {
      const float4 part = load_cluster_four(shared + row * kSumStride + place, split);
      total = {total.x + part.x, total.y + part.y, total.z + part.z, total.w + part.w};
    }
    store(args, row_first + row, n, min(4u, args.weight.rows - n), total);
  }
}

template <Encoding E>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm) matmul_warpgroups_kernel(Args args) {
#if defined(LLMRT_SM_90A)
  uint8_t* base = dynamic_shared();
  base += (1024 - shared_address(base) % 1024) % 1024;
  uint64_t* barriers = reinterpret_cast<uint64_t*>(base + kRingBytes);
  const Ring ring{base, barriers, barriers + kStages};
  const uint32_t group = threadIdx.x / kGroupThreads;
  const uint32_t out_first = blockIdx.x * kBlockOut, row_first = blockIdx.z * kColumns;
  const uint32_t num_steps = (args.weight.columns + kStep - 1) / kStep;
  // gridDim.y is the cluster's size.
  const uint32_t begin = num_steps * blockIdx.y / gridDim.y, end = num_steps * (blockIdx.y + 1) / gridDim.y;
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < kStages; ++i) {
      barrier_init(&ring.full[i], kGroupThreads);
      barrier_init(&ring.free[i], kConsumers * kGroupThreads / kWarp);
    }
    barriers_visible();
  }
  __syncthreads();
  grid_dependency_release();
  float* shared = reinterpret_cast<float*>(base);
  const uint32_t live = *args.live;
  if (group == 0) {
    fewer_registers<kProducerRegisters>();
    grid_dependency_wait();
    fill_ring(ring, args, row_first, live, begin, end);
    __syncthreads();  // all stages have been read
  } else {
    more_registers<kConsumerRegisters>();
    const uint32_t block_out = (group - 1) * 64;
    float sums[kColumns / 8][4] = {};
    multiply<E>(sums, ring, args, out_first + block_out, begin, end);
    __syncthreads();
    const uint32_t g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4, warp = threadIdx.x % kGroupThreads / kWarp;
    float* first = shared + 2 * t * kSumStride + block_out + warp * 16 + g;
#pragma unroll
    for (uint32_t j = 0; j < kColumns / 8; ++j)
#pragma unroll
      for (uint32_t c = 0; c < 4; ++c) first[(j * 8 + c % 2) * kSumStride + c / 2 * 8] = sums[j][c];
  }
  cluster_sync();
  if (live > row_first)
    store_sums(shared, args, out_first, row_first, min(live - row_first, static_cast<uint32_t>(kColumns)));
  cluster_sync();  // nobody leaves while others read its sums
#else
  __trap();  // OpContext::has_warpgroups says that this is not the code that runs
#endif
}

template <Encoding E>
Status launch_encoding(const MatmulArgs& args, MatmulResult result, const OpContext& at) {
  const uint32_t tiles = ceil_div(args.weight.rows, kBlockOut);
  const uint32_t row_tiles = ceil_div(args.num_rows, static_cast<uint32_t>(kColumns));
  // As many blocks as stay beside each other where clusters leave some multiprocessors out.
  const uint32_t wanted = static_cast<uint32_t>(at.num_sms) * kBlocksPerSm * 9 / 10;
  const uint32_t splits = num_splits(args.weight.columns, tiles * row_tiles, wanted);
  const bool in_fours = args.out_stride % 4 == 0 && reinterpret_cast<uintptr_t>(args.out) % 16 == 0;
  const Args kernel_args{args.weight,     static_cast<const __half*>(args.x),
                         args.bias,       reinterpret_cast<std::byte*>(args.out),
                         args.out_stride, in_fours,
                         result,          args.live};
  return launch(at, "matmul_warpgroups", matmul_warpgroups_kernel<E>,
                Grid{dim3(tiles, splits, row_tiles), kThreads, kSharedBytes, splits}, kernel_args);
}

}  // namespace

Status matmul_warpgroups(const MatmulArgs& args, MatmulResult result, const OpContext& at) {
  return with_quantized(args.weight.encoding, [&]<Encoding E>() { return launch_encoding<E>(args, result, at); });
}

}  // namespace llmrt::cuda
