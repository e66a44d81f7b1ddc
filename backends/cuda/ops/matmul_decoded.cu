// matmul of quantised weights for many rows on compute capability 9.0, by the products of warpgroups: out[r][n] = sum
// over k of x[r][k] * W[n][k] + bias[n]; x f16 [rows, K], W [N, K] packed.
//
// A block makes kRows rows of kOuts outputs. Two warpgroups load packed weights, decode them to f16 and store them in a
// ring in shared memory, each every other step of 128 columns; x comes into the same ring by the copy engine. Two
// others multiply, both factors from there: so weights are decoded once for all rows, and nobody waits for x in
// registers.
//
// Blocks of 256 rows are in pairs that share x, each copying half of its rows to both. Where N alone gives too few
// blocks for the device, the steps are split, and a pair are two splits, which exchange halves of their sums through
// shared memory; the pair that ends last adds those of all, in the order of splits.
#include <algorithm>

#include "backends/cuda/arrival.cuh"
#include "backends/cuda/dequant.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/matmul.h"
#include "backends/cuda/reduce.cuh"
#include "backends/cuda/warpgroup.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kGroupThreads = 128, kGroupWarps = kGroupThreads / kWarp, kProducers = 2, kConsumers = 2;
constexpr uint32_t kConsumerThreads = kConsumers * kGroupThreads;
constexpr uint32_t kThreads = kProducers * kGroupThreads + kConsumerThreads;
constexpr uint32_t kRingBytesMax = 200 << 10;

struct Args {
  PackedMatrix weight;
  const float* bias;
  std::byte* out;
  uint32_t out_stride;
  bool in_pairs;  // of outputs, 8 bytes of f32, are stored at once
  MatmulResult result;
  const uint32_t* live;
  uint32_t splits;  // 1 or even
  float4* partials;
  uint32_t* counters;
};

// The warpgroups that multiply take half of the rows each, or of the outputs where there are 64 rows: kRowTiles times
// 64 rows by kGroupOuts outputs.
template <uint32_t kRows_, uint32_t kOuts_>
struct Shape {
  static constexpr uint32_t kRows = kRows_, kOuts = kOuts_;
  static constexpr bool kSplitsRows = kRows > 64, kSharesX = kRows > 128;
  static constexpr uint32_t kGroupRows = kSplitsRows ? kRows / 2 : kRows, kGroupOuts = kSplitsRows ? kOuts : kOuts / 2;
  static constexpr uint32_t kRowTiles = kGroupRows / 64;
  static constexpr uint32_t kRowFours = kGroupOuts / 8, kFours = kRowTiles * kRowFours;  // of a thread's sums
  // A stage is 64 columns of x and of the weights, rows of 128 bytes.
  static constexpr uint32_t kRowBytes = 128, kXBytes = kRows * kRowBytes, kStageBytes = kXBytes + kOuts * kRowBytes;
  static constexpr uint32_t kStages = kRingBytesMax / kStageBytes / 2 * 2;
  static constexpr uint32_t kAtOnce = kStages < 6 ? 1 : 2;  // filled by a warpgroup; it must not hold half of the ring
  // Stages stand at multiples of 1024 bytes, which dynamic shared memory need not.
  static constexpr uint32_t kSharedBytes = 1024 + kStages * kStageBytes + kStages * 2 * 8;
  // Of 128 that a thread starts with.
  static constexpr int kConsumerRegisters = kFours <= 16 ? 128 : 160;
  static constexpr int kProducerRegisters = 256 - kConsumerRegisters;
};

template <class S>
struct Ring {
  uint8_t* stages;
  uint64_t *full, *free;  // [kStages]
  bool is_shared;         // x, with the other block of the pair
  uint32_t rank;          // in the pair

  __device__ uint8_t* x(uint32_t s) const { return stages + s * S::kStageBytes; }
  __device__ uint8_t* weights(uint32_t s) const { return x(s) + S::kXBytes; }

  // By one thread: 64 columns of x, rows from row_first on.
  __device__ void copy_x(const RowMap& map, uint32_t s, uint32_t column, uint32_t row_first) const {
    constexpr uint32_t kHalfRows = S::kRows / 2, kHalfBytes = S::kXBytes / 2;
    barrier_arrive_for_bytes(&full[s], S::kXBytes);
    if (is_shared) {
      copy_rows<2>(x(s) + rank * kHalfBytes, map, column, row_first + rank * kHalfRows, &full[s]);
    } else {
      copy_rows<1>(x(s), map, column, row_first, &full[s]);
      copy_rows<1>(x(s) + kHalfBytes, map, column, row_first + kHalfRows, &full[s]);
    }
  }
  // By the lanes of a warp: it has read the stage.
  __device__ void release(uint32_t s) const {
    const uint32_t lane = threadIdx.x % kWarp;
    if (is_shared) {
      if (lane < 2) barrier_arrive_at(&free[s], lane);
    } else if (lane == 0) {
      barrier_arrive(&free[s]);
    }
  }
};

// What a block makes: rows and outputs from here on, steps [begin, end).
struct Work {
  uint32_t row_first, out_first, begin, end;
};

// ---- producers -----------------------------------------------------------------------------------------------------

template <class S, Encoding E>
__device__ void fill_ring(const Ring<S>& ring, const Args& args, const RowMap& map, const Work& work) {
  constexpr uint32_t kWarpRows = 8, kGroupRows = kGroupWarps * kWarpRows;
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x % kGroupThreads / kWarp, t = lane % 4;
  // Eight lanes, whose stores go together, have rows r and r + 4, which stand in different banks.
  const uint32_t row = warp * kWarpRows + lane / 4 % 2 * 4 + lane / 8;
  constexpr uint32_t kFragments = (S::kOuts + kGroupRows - 1) / kGroupRows;
  Fragment<E> fragments[kFragments];
  const auto has = [&](uint32_t i) {
    return S::kOuts % kGroupRows == 0 || i * kGroupRows + warp * kWarpRows < S::kOuts;
  };
  const auto load = [&](uint32_t i, uint32_t step) {
    // Past the end the last row again, whose sums are not stored.
    if (has(i))
      fragments[i].load(args.weight, min(work.out_first + i * kGroupRows + row, args.weight.rows - 1), step, t);
  };
  const uint32_t first = work.begin + threadIdx.x / kGroupThreads;
  if (first < work.end) {
#pragma unroll
    for (uint32_t i = 0; i < kFragments; ++i) load(i, first);
  }
  grid_dependency_wait();  // the weights above never change
  for (uint32_t step = first; step < work.end; step += kProducers) {
#pragma unroll
    for (uint32_t half = 0; half < 2; half += S::kAtOnce) {
      const uint32_t n = 2 * (step - work.begin) + half, s = n % S::kStages;
#pragma unroll
      for (uint32_t i = 0; i < S::kAtOnce; ++i) barrier_wait(&ring.free[s + i], ~(n / S::kStages) & 1);
      if (lane == 0 && warp == n / 4 % kGroupWarps) {  // in turn: it takes as long as decoding some chunks
#pragma unroll
        for (uint32_t i = 0; i < S::kAtOnce; ++i)
          ring.copy_x(map, s + i, step * kStep + (half + i) * 64, work.row_first);
      }
      __syncwarp();
      uint8_t* to = ring.weights(s) + row * S::kRowBytes;
#pragma unroll
      for (uint32_t i = 0; i < kFragments; ++i) {
        if (!has(i)) continue;
#pragma unroll
        for (uint32_t u = 0; u < 2 * S::kAtOnce; ++u) {
          uint32_t pairs[4];
          decode_scaled(fragments[i], 2 * half + u, t, step, pairs);
          const uint32_t place = (u % 2 * 4 + t) ^ row % 8;
          *reinterpret_cast<uint4*>(to + u / 2 * S::kStageBytes + i * kGroupRows * S::kRowBytes + place * 16) = {
              pairs[0], pairs[1], pairs[2], pairs[3]};
        }
        if (half + S::kAtOnce == 2 && step + kProducers < work.end) load(i, step + kProducers);
      }
      shared_writes_visible();
      __syncwarp();
      if (lane < S::kAtOnce) barrier_arrive(&ring.full[s + lane]);
    }
  }
}

// ---- consumers -----------------------------------------------------------------------------------------------------

// A thread's sums: fours of outputs n, n + 1 of a row and of the one 8 further on.
template <class S>
struct Sums {
  float tiles[S::kRowTiles][S::kRowFours][4] = {};

  __device__ float (&four(uint32_t i))[4] { return tiles[i / S::kRowFours][i % S::kRowFours]; }
};

template <class S>
__device__ void multiply(Sums<S>& sums, const Ring<S>& ring, uint32_t num_stages) {
  const uint32_t group = threadIdx.x / kGroupThreads - kProducers;
  const uint32_t x_first = S::kSplitsRows ? group * S::kGroupRows * S::kRowBytes : 0;
  const uint32_t weights_first = S::kSplitsRows ? 0 : group * S::kGroupOuts * S::kRowBytes;
  uint32_t s = 0, parity = 0, before = 0;
  for (uint32_t n = 0; n < num_stages; ++n) {
    barrier_wait(&ring.full[s], parity);
    const uint64_t x = product_operand(shared_address(ring.x(s)) + x_first, 0);
    const uint64_t weights = product_operand(shared_address(ring.weights(s)) + weights_first, 0);
    products_begin();
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k)
#pragma unroll
      for (uint32_t i = 0; i < S::kRowTiles; ++i)
        warpgroup_product(sums.tiles[i], x + (i * 64 * S::kRowBytes + k * 32) / 16, weights + k * 32 / 16);
    products_commit();
    products_wait_older<1>();  // the stage before may be written over
    if (n > 0) ring.release(before);
    before = s;
    if (++s == S::kStages) {
      s = 0;
      parity ^= 1;
    }
  }
#pragma unroll
  for (uint32_t i = 0; i < S::kRowTiles; ++i) products_wait<0>(sums.tiles[i]);
}

// Adds the splits. Of two and more a block is left with half of the fours, from 0 on, and the others are for the other
// block of the cluster; false: another pair of blocks stores them.
template <class S>
__device__ bool add_splits(Sums<S>& sums, const Args& args, float4* shared) {
  constexpr uint32_t kHalf = S::kFours / 2;
  const uint32_t rank = blockIdx.y % 2, thread = threadIdx.x - kProducers * kGroupThreads;
  named_barrier_wait(1, kConsumerThreads);  // all stages have been read
#pragma unroll
  for (uint32_t i = 0; i < kHalf; ++i) {
    const float(&low)[4] = sums.four(i), (&high)[4] = sums.four(i + kHalf);
    shared[i * kConsumerThreads + thread] =
        rank ? float4{low[0], low[1], low[2], low[3]} : float4{high[0], high[1], high[2], high[3]};
  }
  cluster_sync();
#pragma unroll
  for (uint32_t i = 0; i < kHalf; ++i) {
    const float* theirs = reinterpret_cast<const float*>(shared + i * kConsumerThreads + thread);
    const float4 four = load_cluster_four(theirs, 1 - rank);
    const float each[4] = {four.x, four.y, four.z, four.w};
    float(&low)[4] = sums.four(i), (&high)[4] = sums.four(i + kHalf);
#pragma unroll
    for (uint32_t c = 0; c < 4; ++c) low[c] = (rank ? high[c] : low[c]) + each[c];
  }
  cluster_sync();  // nobody writes there or leaves while the other one reads
  const uint32_t num_pairs = args.splits / 2, pair = blockIdx.y / 2;
  if (num_pairs == 1) return true;
  const uint32_t half_idx = (blockIdx.z * gridDim.x + blockIdx.x) * 2 + rank;
  float4* partials = args.partials + uint64_t{half_idx} * num_pairs * kHalf * kConsumerThreads + thread;
#pragma unroll
  for (uint32_t i = 0; i < kHalf; ++i) {
    const float(&four)[4] = sums.four(i);
    partials[(pair * kHalf + i) * kConsumerThreads] = {four[0], four[1], four[2], four[3]};
  }
  uint32_t* is_last = reinterpret_cast<uint32_t*>(shared);
  if (!arrives_last(args.counters + half_idx, num_pairs, 1, kConsumerThreads, thread == 0, is_last)) return false;
  for (uint32_t p = 0; p < num_pairs; ++p) {
#pragma unroll
    for (uint32_t i = 0; i < kHalf; ++i) {
      const float4 part = __ldcg(partials + (p * kHalf + i) * kConsumerThreads);
      float(&four)[4] = sums.four(i);
      four[0] = part.x + (p > 0 ? four[0] : 0.0f);
      four[1] = part.y + (p > 0 ? four[1] : 0.0f);
      four[2] = part.z + (p > 0 ? four[2] : 0.0f);
      four[3] = part.w + (p > 0 ? four[3] : 0.0f);
    }
  }
  return true;
}

// fn(row, n, sum of n, sum of n + 1) for what is to be stored of the first kCount fours, where they are from `half` on.
template <class S, uint32_t kCount, class Fn>
__device__ void each_pair(Sums<S>& sums, const Args& args, uint32_t live, const Work& work, uint32_t half, Fn fn) {
  const uint32_t thread = threadIdx.x % kGroupThreads, group = threadIdx.x / kGroupThreads - kProducers;
  uint32_t row_first =
      work.row_first + (S::kSplitsRows ? group * S::kGroupRows : 0) + thread / 4 / 8 * 16 + thread / 4 % 8;
  uint32_t out_first = work.out_first + (S::kSplitsRows ? 0 : group * S::kGroupOuts) + thread % 4 * 2;
  if constexpr (S::kRowTiles == 2)
    row_first += half * 64;
  else
    out_first += half * S::kGroupOuts / 2;
#pragma unroll
  for (uint32_t i = 0; i < kCount * 2; ++i) {
    const uint32_t row = row_first + i / 2 / S::kRowFours * 64 + i % 2 * 8, n = out_first + i / 2 % S::kRowFours * 8;
    float(&four)[4] = sums.four(i / 2);
    if (row < live && n < args.weight.rows) fn(row, n, four[i % 2 * 2], four[i % 2 * 2 + 1]);
  }
}

// Each pass reads what all sums need before the first of them is stored.
template <class S, uint32_t kCount>
__device__ void store(Sums<S>& sums, const Args& args, uint32_t live, const Work& work, uint32_t half) {
  float* out = reinterpret_cast<float*>(args.out);
  __half* out_f16 = reinterpret_cast<__half*>(args.out);
  const auto is_pair = [&](uint32_t n) { return n + 1 < args.weight.rows; };
  const auto place = [&](uint32_t row, uint32_t n) { return uint64_t{row} * args.out_stride + n; };
  if (args.bias)
    each_pair<S, kCount>(sums, args, live, work, half, [&](uint32_t, uint32_t n, float& first, float& second) {
      first += args.bias[n];
      if (is_pair(n)) second += args.bias[n + 1];
    });
  if (args.result == MatmulResult::kAdded)
    each_pair<S, kCount>(sums, args, live, work, half, [&](uint32_t row, uint32_t n, float& first, float& second) {
      const float* at = out + place(row, n);
      if (args.in_pairs && is_pair(n)) {
        const float2 old = *reinterpret_cast<const float2*>(at);
        first += old.x;
        second += old.y;
      } else {
        first += at[0];
        if (is_pair(n)) second += at[1];
      }
    });
  each_pair<S, kCount>(sums, args, live, work, half, [&](uint32_t row, uint32_t n, float& first, float& second) {
    const uint64_t at = place(row, n);
    if (args.in_pairs && is_pair(n)) {
      if (args.result == MatmulResult::kF16)
        *reinterpret_cast<__half2*>(out_f16 + at) = __floats2half2_rn(first, second);
      else
        *reinterpret_cast<float2*>(out + at) = {first, second};
    } else if (args.result == MatmulResult::kF16) {
      out_f16[at] = __float2half_rn(first);
      if (is_pair(n)) out_f16[at + 1] = __float2half_rn(second);
    } else {
      out[at] = first;
      if (is_pair(n)) out[at + 1] = second;
    }
  });
}

// ---- the kernel ----------------------------------------------------------------------------------------------------

template <Encoding E, class S>
__global__ void __launch_bounds__(kThreads, 1)
    matmul_decoded_kernel(const Args args, const __grid_constant__ RowMap map) {
#if defined(LLMRT_SM_90A)
  uint8_t* base = dynamic_shared_at_1024();
  uint64_t* barriers = reinterpret_cast<uint64_t*>(base + S::kStages * S::kStageBytes);
  const bool is_split = args.splits > 1, is_shared = S::kSharesX && !is_split;
  const Ring<S> ring{base, barriers, barriers + S::kStages, is_shared, blockIdx.y % 2};
  const uint32_t num_steps = (args.weight.columns + kStep - 1) / kStep;
  const uint32_t tile = is_split ? blockIdx.x : blockIdx.x * 2 + blockIdx.y, split = is_split ? blockIdx.y : 0;
  const Work work{blockIdx.z * S::kRows, tile * S::kOuts, num_steps * split / args.splits,
                  num_steps * (split + 1) / args.splits};
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < S::kStages; ++i) {
      barrier_init(&ring.full[i], 1 + kGroupWarps);
      barrier_init(&ring.free[i], kConsumers * kGroupWarps * (is_shared ? 2 : 1));
    }
    barriers_visible();
  }
  cluster_sync();
  grid_dependency_release();
  if (threadIdx.x < kProducers * kGroupThreads) {
    if constexpr (S::kProducerRegisters < 128) fewer_registers<S::kProducerRegisters>();
    fill_ring<S, E>(ring, args, map, work);
    __syncwarp();
    cluster_sync();
    if (is_split) cluster_sync();  // as in add_splits
  } else {
    if constexpr (S::kConsumerRegisters > 128) more_registers<S::kConsumerRegisters>();
    const uint32_t live = *args.live;
    Sums<S> sums;
    multiply<S>(sums, ring, 2 * (work.end - work.begin));
    grid_dependency_wait();
    if (!is_split) {
      cluster_sync();  // nobody leaves while the other one copies or arrives here
      store<S, S::kFours>(sums, args, live, work, 0);
    } else if (add_splits<S>(sums, args, reinterpret_cast<float4*>(base))) {
      store<S, S::kFours / 2>(sums, args, live, work, blockIdx.y % 2);
    }
  }
#else
  __trap();  // OpContext::has_warpgroups says that this is not the code that runs
#endif
}

// How a matrix is cut into blocks of rows by outs, and how long they take together, in columns of a block's outputs.
struct Cut {
  uint32_t rows, outs, tiles, row_tiles, splits;
  uint64_t cost;

  Cut(const MatmulShape& shape, const CompileInputs& inputs, uint32_t rows_, uint32_t outs_)
      : rows(rows_), outs(outs_) {
    const uint32_t num_sms = inputs.device.num_sms, columns = shape.weight.columns;
    tiles = ceil_div(shape.weight.rows, outs);
    row_tiles = ceil_div(shape.num_rows, rows);
    const uint32_t possible = num_splits(columns, tiles * row_tiles, num_sms);
    splits = possible == 1 ? 1 : possible / 2 * 2;
    // Reading x in shared memory takes as long whatever the number of outputs.
    const uint64_t rounds = ceil_div(tiles * row_tiles * splits, num_sms);
    cost = rounds * ceil_div(columns, splits) * (outs + inputs.tuning.decoded_extra_outs);
  }
};

Cut best_cut(const MatmulShape& shape, const CompileInputs& inputs, uint32_t rows) {
  const Cut wide(shape, inputs, rows, 128);
  if (rows == 64) return wide;
  // Two pairs of splits would meet in global memory, which takes longer than blocks of half as many outputs.
  if (wide.splits > 2) return Cut(shape, inputs, rows, 64);
  const Cut narrow(shape, inputs, rows, 112);
  return narrow.cost < wide.cost ? narrow : wide;
}

// fn.template operator()<Shape<kRows, kOuts>>().
template <class Fn>
auto with_shape(uint32_t rows, uint32_t outs, Fn fn) {
  const auto with_rows = [&]<uint32_t kRows>() {
    if (outs == 64) return fn.template operator()<Shape<kRows, 64>>();
    if (outs == 112) return fn.template operator()<Shape<kRows, 112>>();
    return fn.template operator()<Shape<kRows, 128>>();
  };
  if (rows == 64) return fn.template operator()<Shape<64, 128>>();
  if (rows == 128) return with_rows.template operator()<128>();
  return with_rows.template operator()<256>();
}

template <Encoding E, class S>
Status start(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at) {
  const Result<RowMap> map = make_row_map(args.x, args.num_rows, args.weight.columns, S::kRows / 2);
  if (!map) return map.error();
  const bool in_pairs = args.out_stride % 2 == 0 && reinterpret_cast<uintptr_t>(args.out) % 8 == 0;
  const Args kernel_args{args.weight,
                         args.bias,
                         reinterpret_cast<std::byte*>(args.out),
                         args.out_stride,
                         in_pairs,
                         choice.result,
                         args.live,
                         choice.splits,
                         reinterpret_cast<float4*>(at.workspace.data),
                         at.workspace.counters};
  return launch(at, choice, matmul_decoded_kernel<E, S>, kernel_args, *map);
}

}  // namespace

void lay_out_decoded(const MatmulShape& shape, const CompileInputs& inputs, MatmulChoice* choice) {
  const Cut cut = best_cut(shape, inputs, choice->tile_rows);
  choice->tile_outs = cut.outs;
  choice->splits = cut.splits;
  choice->threads = kThreads;
  with_shape(cut.rows, cut.outs, [&]<class S>() {
    choice->grid = cut.splits == 1 ? Extent{ceil_div(cut.tiles, 2u), 2, cut.row_tiles}
                                   : Extent{cut.tiles, cut.splits, cut.row_tiles};
    choice->cluster = cut.splits > 1 || S::kSharesX ? 2 : 1;
    choice->shared_bytes = S::kSharedBytes;
    choice->stages = S::kStages;
  });
}

Status matmul_decoded(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at) {
  return with_quantized(args.weight.encoding, [&]<Encoding E>() {
    return with_shape(choice.tile_rows, choice.tile_outs, [&]<class S>() { return start<E, S>(choice, args, at); });
  });
}

}  // namespace llmrt::cuda
