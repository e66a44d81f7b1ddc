// matmul of f16 weights for many rows on compute capability 9.0, by the products of warpgroups: out[r][n] = sum over k
// of x[r][k] * W[n][k] + bias[n]; x f16 [rows, K], W f16 [N, K]. For steps of some hundred rows, of which a library's
// tiles leave many multiprocessors without work.
//
// A block makes kOuts outputs of kRows rows: one warpgroup has both factors copied into a ring in shared memory, two
// multiply, with outputs as rows of the products and rows as their columns, so that kRows is whatever the step needs.
// Blocks are in pairs of neighbouring outputs, which share x: each copies half of its rows to both.
//
// There are as many blocks as multiprocessors. Pairs that make the same outputs of different rows are a group, and the
// groups share the work by steps of columns ("stream-K", Osama et al. 2023, arXiv:2301.03598): what divides evenly is
// made tile by tile, the rest cut into equal parts wherever that falls; the blocks that have parts of one tile leave
// their sums in the workspace, and the last to arrive adds them, in the order of columns.
#include <algorithm>

#include "backends/cuda/activation.cuh"
#include "backends/cuda/arrival.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/matmul.h"
#include "backends/cuda/warpgroup.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kWarp = 32, kGroupThreads = 128, kConsumers = 2, kConsumerThreads = kConsumers * kGroupThreads;
constexpr uint32_t kThreads = kGroupThreads + kConsumerThreads;
constexpr uint32_t kOuts = 128, kPairOuts = 2 * kOuts, kGroupOuts = kOuts / kConsumers;
constexpr uint32_t kTileRowsMax = 256;
constexpr uint32_t kColumns = 64, kRowBytes = kColumns * 2;  // of a stage

// How the work is cut. A tile is a pair's outputs; the first `split_tiles` are cut into equal parts of their steps for
// all groups, the others are made whole.
struct Cut {
  uint32_t tiles, steps, row_tiles, groups, split_tiles;
};

struct Args {
  uint32_t num_outs;  // where gated: of one half
  const float* bias;
  std::byte* out;
  uint32_t out_stride;
  bool in_fours;  // of outputs, 16 bytes of f32, are stored at once
  MatmulResult result;
  Activation activation;
  const uint32_t* live;
  Cut cut;
  float4* partials;
  uint32_t* counters;
};

template <uint32_t kRows_>
struct Shape {
  static constexpr uint32_t kRows = kRows_, kFours = kRows / 8;  // of a thread's sums
  static constexpr uint32_t kXBytes = kRows * kRowBytes, kWeightBytes = kOuts * kRowBytes;
  static constexpr uint32_t kStageBytes = kXBytes + kWeightBytes;
  // Results pass through shared memory, so many rows at a time, to be stored in whole lines. The stride keeps the
  // lanes' words in different banks.
  static constexpr uint32_t kStoreRows = 32, kStoreStride = kGroupOuts + 4;
  static constexpr uint32_t kStoreBytes = kStoreRows * kStoreStride * 4;  // of a warpgroup
  static constexpr uint32_t kSharedBytesMax = 227 << 10, kBarrierBytes = 512;
  static constexpr uint32_t kStages =
      std::min((kSharedBytesMax - 1024 - kConsumers * kStoreBytes - kBarrierBytes) / kStageBytes, 16u);
  // Stages stand at multiples of 1024 bytes, which dynamic shared memory need not.
  static constexpr uint32_t kSharedBytes = 1024 + kStages * kStageBytes + kConsumers * kStoreBytes + kBarrierBytes;
  static constexpr uint64_t kPartialFours = uint64_t{kFours} * kConsumerThreads;  // of a block's tile
};

struct Ring {
  uint8_t* stages;
  uint64_t *full, *free;
};

// Steps [begin, end) of a tile.
struct Part {
  uint32_t tile, begin, end;
};

// The parts of a group, one after the other.
class Parts {
 public:
  __device__ Parts(const Cut& cut, uint32_t group)
      : cut_(cut), at_(split_begin(cut, group)), end_(split_begin(cut, group + 1)), whole_(cut.split_tiles + group) {}

  __device__ bool next(Part* part) {
    if (at_ < end_) {
      const uint32_t tile = at_ / cut_.steps, begin = at_ % cut_.steps, end = min(cut_.steps, begin + end_ - at_);
      *part = {tile, begin, end};
      at_ += end - begin;
      return true;
    }
    if (whole_ >= cut_.tiles) return false;
    *part = {whole_, 0, cut_.steps};
    whole_ += cut_.groups;
    return true;
  }

  // The steps of all split tiles, one after the other, that a group begins with, and the group that has step `at`.
  static __device__ uint32_t split_begin(const Cut& cut, uint32_t group) {
    return static_cast<uint32_t>(uint64_t{cut.split_tiles} * cut.steps * group / cut.groups);
  }
  static __device__ uint32_t group_at(const Cut& cut, uint32_t at) {
    return static_cast<uint32_t>(((at + uint64_t{1}) * cut.groups - 1) / (uint64_t{cut.split_tiles} * cut.steps));
  }

 private:
  const Cut& cut_;
  uint32_t at_, end_, whole_;
};

// ---- the copies ----------------------------------------------------------------------------------------------------

// By one thread.
template <class S>
__device__ void fill_ring(const Ring& ring, const Args& args, const RowMap& weights, const RowMap& x, uint32_t group,
                          uint32_t row_first, uint32_t rank) {
  const bool is_gated = args.result == MatmulResult::kGated;
  const auto copy_weights = [&](uint32_t s, const Part& part, uint32_t step) {
    barrier_arrive_for_bytes(&ring.full[s], S::kStageBytes);
    uint8_t* to = ring.stages + s * S::kStageBytes + S::kXBytes;
    const uint32_t block = part.tile * 2 + rank;
    if (is_gated)
      copy_row_pairs(to, weights, step * kColumns, block * (kOuts / 2), &ring.full[s]);
    else
      copy_rows<1>(to, weights, step * kColumns, block * kOuts, &ring.full[s]);
  };
  Part part;
  uint32_t n = 0;
  for (Parts parts(args.cut, group); n < S::kStages && parts.next(&part);)  // what never changes needs no wait
    for (uint32_t step = part.begin; step < part.end && n < S::kStages; ++step) copy_weights(n++, part, step);
  grid_dependency_wait();
  n = 0;
  for (Parts parts(args.cut, group); parts.next(&part);) {
    for (uint32_t step = part.begin; step < part.end; ++step, ++n) {
      const uint32_t s = n % S::kStages;
      if (n >= S::kStages) {
        barrier_wait(&ring.free[s], ~(n / S::kStages) & 1);
        copy_weights(s, part, step);
      }
      copy_rows<2>(ring.stages + s * S::kStageBytes + rank * (S::kXBytes / 2), x, step * kColumns,
                   row_first + rank * (S::kRows / 2), &ring.full[s]);
    }
  }
}

// ---- the products --------------------------------------------------------------------------------------------------

template <class S>
struct Sums {
  float fours[S::kFours][4] = {};  // rows 8 i + 2 t, + 1 of output g, then of output g + 8
};

// `n`: stages used before; moved on.
template <class S>
__device__ void multiply(Sums<S>& sums, const Ring& ring, uint32_t steps, uint32_t* n) {
  const uint32_t group = threadIdx.x / kGroupThreads - 1, lane = threadIdx.x % kWarp;
  const auto release = [&](uint32_t s) {
    if (lane < 2) barrier_arrive_at(&ring.free[s], lane);
  };
  uint32_t before = 0;
  for (uint32_t i = 0; i < steps; ++i, ++*n) {
    const uint32_t s = *n % S::kStages;
    barrier_wait(&ring.full[s], *n / S::kStages & 1);
    const uint32_t stage = shared_address(ring.stages + s * S::kStageBytes);
    const uint64_t x = product_operand(stage, 0);
    const uint64_t weights = product_operand(stage + S::kXBytes + group * kGroupOuts * kRowBytes, 0);
    products_begin();
#pragma unroll
    for (uint32_t k = 0; k < kColumns / 16; ++k) warpgroup_product(sums.fours, weights + k * 32 / 16, x + k * 32 / 16);
    products_commit();
    products_wait_older<1>();  // the stage before may be written over
    if (i > 0) release(before);
    before = s;
  }
  products_wait<0>(sums.fours);
  release(before);
}

// Of a tile whose steps several groups have: leaves the sums for the others, and is true in the last of them, with the
// sums of all.
template <class S>
__device__ bool join(Sums<S>& sums, const Args& args, const Part& part, uint32_t row_tile, uint32_t rank,
                     uint32_t* is_last) {
  const Cut& cut = args.cut;
  const uint32_t first_step = part.tile * cut.steps, thread = threadIdx.x - kGroupThreads;
  const uint32_t first = Parts::group_at(cut, first_step), last = Parts::group_at(cut, first_step + cut.steps - 1);
  // A group has at most two parts of tiles that others have parts of too: one it begins within, one it begins with.
  const auto partial = [&](uint32_t group) {
    const uint32_t which = Parts::split_begin(cut, group) > first_step ? 0 : 1;
    return args.partials + (((uint64_t{group} * 2 + which) * cut.row_tiles + row_tile) * 2 + rank) * S::kPartialFours +
           thread;
  };
  const uint32_t mine = Parts::group_at(cut, first_step + part.begin);
  float4* to = partial(mine);
#pragma unroll
  for (uint32_t i = 0; i < S::kFours; ++i) {
    const float(&four)[4] = sums.fours[i];
    to[i * kConsumerThreads] = {four[0], four[1], four[2], four[3]};
  }
  uint32_t* counter = args.counters + (part.tile * cut.row_tiles + row_tile) * 2 + rank;
  if (!arrives_last(counter, last - first + 1, 1, kConsumerThreads, thread == 0, is_last)) return false;
  for (uint32_t group = first; group <= last; ++group) {
    const float4* from = partial(group);
#pragma unroll
    for (uint32_t i = 0; i < S::kFours; ++i) {
      const float4 added = __ldcg(from + i * kConsumerThreads);
      float(&four)[4] = sums.fours[i];
      four[0] = added.x + (group > first ? four[0] : 0.0f);
      four[1] = added.y + (group > first ? four[1] : 0.0f);
      four[2] = added.z + (group > first ? four[2] : 0.0f);
      four[3] = added.w + (group > first ? four[3] : 0.0f);
    }
  }
  return true;
}

// ---- the results ---------------------------------------------------------------------------------------------------

// Of a warpgroup: rows [row_first, row_first + kRows) below `live`, outputs from out_first on. `words`: kStoreBytes of
// its own.
template <class S>
__device__ void store(const Sums<S>& sums, const Args& args, uint32_t live, uint32_t row_first, uint32_t out_first,
                      float* words) {
  const uint32_t thread = threadIdx.x % kGroupThreads, barrier = 1 + threadIdx.x / kGroupThreads;
  const uint32_t lane_out = thread / kWarp * 16 + thread % kWarp / 4, lane_row = thread % 4 * 2;
  constexpr uint32_t kFoursRow = kGroupOuts / 4, kRowsAtOnce = kGroupThreads / kFoursRow;
  constexpr uint32_t kLoads = S::kStoreRows / kRowsAtOnce;
  const uint32_t column = thread % kFoursRow * 4, n = out_first + column;
  const bool is_whole = args.in_fours && n + 4 <= args.num_outs, adds = args.result == MatmulResult::kAdded;
  float* out = reinterpret_cast<float*>(args.out);
  float bias[4] = {};
  if (args.bias)
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) bias[j] = n + j < args.num_outs ? args.bias[n + j] : 0.0f;
#pragma unroll
  for (uint32_t part = 0; part < S::kRows / S::kStoreRows; ++part) {
    const uint32_t row_begin = row_first + part * S::kStoreRows;
    if (row_begin >= live) return;
    float4 old[kLoads] = {};
    if (adds && is_whole)
#pragma unroll
      for (uint32_t i = 0; i < kLoads; ++i) {
        const uint32_t row = row_begin + i * kRowsAtOnce + thread / kFoursRow;
        if (row < live) old[i] = *reinterpret_cast<const float4*>(out + uint64_t{row} * args.out_stride + n);
      }
    named_barrier_wait(barrier, kGroupThreads);  // all have read what stood there
#pragma unroll
    for (uint32_t i = 0; i < S::kStoreRows / 8; ++i) {
      const float(&four)[4] = sums.fours[part * (S::kStoreRows / 8) + i];
      float* at = words + (i * 8 + lane_row) * S::kStoreStride + lane_out;
      at[0] = four[0];
      at[S::kStoreStride] = four[1];
      at[8] = four[2];
      at[S::kStoreStride + 8] = four[3];
    }
    named_barrier_wait(barrier, kGroupThreads);
#pragma unroll
    for (uint32_t i = 0; i < kLoads; ++i) {
      const uint32_t row_there = i * kRowsAtOnce + thread / kFoursRow, row = row_begin + row_there;
      if (row >= live) continue;
      float4 four = *reinterpret_cast<const float4*>(words + row_there * S::kStoreStride + column);
      four = {four.x + bias[0] + old[i].x, four.y + bias[1] + old[i].y, four.z + bias[2] + old[i].z,
              four.w + bias[3] + old[i].w};
      const uint64_t at = uint64_t{row} * args.out_stride + n;
      if (is_whole && args.result == MatmulResult::kF16) {
        const __half2 low = __floats2half2_rn(four.x, four.y), high = __floats2half2_rn(four.z, four.w);
        *reinterpret_cast<uint2*>(reinterpret_cast<__half*>(args.out) + at) = {half2_bits(low), half2_bits(high)};
      } else if (is_whole) {
        *reinterpret_cast<float4*>(out + at) = four;
      } else {
        const float each[4] = {four.x, four.y, four.z, four.w};
        for (uint32_t j = 0; j < 4 && n + j < args.num_outs; ++j) {
          if (args.result == MatmulResult::kF16)
            reinterpret_cast<__half*>(args.out)[at + j] = __float2half_rn(each[j]);
          else
            out[at + j] = each[j] + (adds ? out[at + j] : 0.0f);
        }
      }
    }
  }
}

// The same where each warp's outputs are eight gates and the eight numbers that they let through.
template <class S>
__device__ void store_gated(const Sums<S>& sums, const Args& args, uint32_t live, uint32_t row_first,
                            uint32_t out_first, float* words) {
  constexpr uint32_t kStride = kGroupOuts / 2 + 8, kEightsRow = kGroupOuts / 2 / 8;
  const uint32_t thread = threadIdx.x % kGroupThreads, barrier = 1 + threadIdx.x / kGroupThreads;
  __half* halves = reinterpret_cast<__half*>(words);
  const uint32_t lane_out = thread / kWarp * 8 + thread % kWarp / 4, lane_row = thread % 4 * 2;
  const uint32_t row_there = thread / kEightsRow, n = out_first + thread % kEightsRow * 8;
#pragma unroll
  for (uint32_t part = 0; part < S::kRows / S::kStoreRows; ++part) {
    const uint32_t row_begin = row_first + part * S::kStoreRows;
    if (row_begin >= live) return;
    named_barrier_wait(barrier, kGroupThreads);
#pragma unroll
    for (uint32_t i = 0; i < S::kStoreRows / 8; ++i) {
      const float(&four)[4] = sums.fours[part * (S::kStoreRows / 8) + i];
      __half* at = halves + (i * 8 + lane_row) * kStride + lane_out;
      at[0] = __float2half_rn(activate(args.activation, four[0]) * four[2]);
      at[kStride] = __float2half_rn(activate(args.activation, four[1]) * four[3]);
    }
    named_barrier_wait(barrier, kGroupThreads);
    static_assert(kGroupThreads / kEightsRow == S::kStoreRows);
    const uint32_t row = row_begin + row_there;
    if (row < live && n < args.num_outs)
      *reinterpret_cast<uint4*>(reinterpret_cast<__half*>(args.out) + uint64_t{row} * args.out_stride + n) =
          *reinterpret_cast<const uint4*>(halves + row_there * kStride + thread % kEightsRow * 8);
  }
}

// ---- the kernel ----------------------------------------------------------------------------------------------------

template <class S>
__global__ void __launch_bounds__(kThreads, 1)
    matmul_dense_kernel(const Args args, const __grid_constant__ RowMap weights, const __grid_constant__ RowMap x) {
#if defined(LLMRT_SM_90A)
  uint8_t* base = dynamic_shared();
  base += (1024 - shared_address(base) % 1024) % 1024;
  float* words = reinterpret_cast<float*>(base + S::kStages * S::kStageBytes);
  uint64_t* barriers = reinterpret_cast<uint64_t*>(base + S::kStages * S::kStageBytes + kConsumers * S::kStoreBytes);
  uint32_t* is_last = reinterpret_cast<uint32_t*>(barriers + 2 * S::kStages);
  const Ring ring{base, barriers, barriers + S::kStages};
  const uint32_t group = blockIdx.x / args.cut.row_tiles, row_tile = blockIdx.x % args.cut.row_tiles;
  const uint32_t rank = blockIdx.y, row_first = row_tile * S::kRows, warpgroup = threadIdx.x / kGroupThreads;
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < S::kStages; ++i) {
      barrier_init(&ring.full[i], 1);
      barrier_init(&ring.free[i], 2 * kConsumerThreads / kWarp);
    }
    barriers_visible();
    prefetch_map(weights);
    prefetch_map(x);
  }
  cluster_sync();
  grid_dependency_release();
  if (warpgroup == 0) {
    fewer_registers<40>();
    if (threadIdx.x == 0) fill_ring<S>(ring, args, weights, x, group, row_first, rank);
    __syncwarp();
  } else {
    more_registers<232>();
    const uint32_t live = *args.live;
    const bool is_gated = args.result == MatmulResult::kGated;
    float* own_words = words + (warpgroup - 1) * (S::kStoreBytes / 4);
    uint32_t stages_used = 0;
    grid_dependency_wait();
    Part part;
    for (Parts parts(args.cut, group); parts.next(&part);) {
      Sums<S> sums;
      multiply<S>(sums, ring, part.end - part.begin, &stages_used);
      const bool is_whole = part.begin == 0 && part.end == args.cut.steps;
      if (!is_whole && !join<S>(sums, args, part, row_tile, rank, is_last)) continue;
      const uint32_t out_first = (part.tile * 2 + rank) * kOuts + (warpgroup - 1) * kGroupOuts;
      if (is_gated)
        store_gated<S>(sums, args, live, row_first, out_first / 2, own_words);
      else
        store<S>(sums, args, live, row_first, out_first, own_words);
    }
  }
  cluster_sync();  // nobody leaves while the other one copies or arrives here
#else
  __trap();  // OpContext::has_warpgroups says that this is not the code that runs
#endif
}

Cut cut_of(uint32_t outs, uint32_t columns, uint32_t row_tiles, uint32_t pairs) {
  constexpr uint32_t kStepsMin = 4;  // of a group; each must have one
  Cut cut{ceil_div(outs, kPairOuts), ceil_div(columns, kColumns), row_tiles, 0, 0};
  cut.groups = std::clamp(cut.tiles * cut.steps / kStepsMin, 1u, pairs / row_tiles);
  // Where each tile can be for the same number of groups, they need not share more than that.
  const uint32_t even = cut.tiles <= cut.groups ? cut.groups / cut.tiles * cut.tiles : cut.groups;
  if (even * 16 >= cut.groups * 15) cut.groups = even;
  const uint32_t rest = cut.tiles % cut.groups, rounds = cut.tiles / cut.groups;
  cut.split_tiles = rest == 0 ? 0 : rounds == 0 ? cut.tiles : cut.groups + rest;
  return cut;
}

template <uint32_t kRows>
Status launch_rows(const MatmulArgs& args, MatmulResult result, const OpContext& at) {
  using S = Shape<kRows>;
  const PackedMatrix& w = args.weight;
  const bool is_gated = result == MatmulResult::kGated;
  const uint32_t row_tiles = ceil_div(args.num_rows, kRows);
  const Cut cut = cut_of(w.rows, w.columns, row_tiles, static_cast<uint32_t>(at.num_sms) / 2);
  const Result<RowMap> weights = is_gated ? make_row_pair_map(w.plane[0], w.rows / 2, w.columns, kOuts / 2)
                                          : make_row_map(w.plane[0], w.rows, w.columns, kOuts);
  if (!weights) return weights.error();
  const Result<RowMap> x = make_row_map(args.x, args.num_rows, w.columns, kRows / 2);
  if (!x) return x.error();
  const uint32_t four_bytes = result == MatmulResult::kF16 ? 8 : 16;
  const bool in_fours = args.out_stride % 4 == 0 && reinterpret_cast<uintptr_t>(args.out) % four_bytes == 0;
  const Args kernel_args{is_gated ? w.rows / 2 : w.rows,
                         args.bias,
                         reinterpret_cast<std::byte*>(args.out),
                         args.out_stride,
                         in_fours,
                         result,
                         args.activation,
                         args.live,
                         cut,
                         reinterpret_cast<float4*>(at.workspace.data),
                         at.workspace.counters};
  const uint64_t partial_bytes =
      cut.split_tiles == 0 ? 0 : uint64_t{cut.groups} * row_tiles * 4 * S::kPartialFours * 16;
  const uint32_t num_counters = cut.split_tiles * row_tiles * 2;
  LLMRT_CHECK(partial_bytes <= at.workspace.bytes && num_counters <= at.workspace.num_counters,
              "matmul_dense: a workspace that is too small");
  return launch(at, "matmul_dense", matmul_dense_kernel<S>,
                Grid{dim3(cut.groups * row_tiles, 2), kThreads, S::kSharedBytes, 2}, kernel_args, *weights, *x);
}

}  // namespace

bool can_dense(const PackedMatrix& weight, uint32_t rows, const OpContext& at) {
  const uint64_t num_sms = static_cast<uint64_t>(at.num_sms), partial_bytes = kOuts * kTileRowsMax * 4;
  return at.has_dense && weight.encoding == Encoding::kF16 && ceil_div(rows, kTileRowsMax) <= num_sms / 2 &&
         num_sms * 2 * partial_bytes <= at.workspace.bytes;
}

Status matmul_dense(const MatmulArgs& args, MatmulResult result, const OpContext& at) {
  const uint32_t rows = ceil_div(args.num_rows, ceil_div(args.num_rows, kTileRowsMax));  // of a tile
  return rows <= 96    ? launch_rows<96>(args, result, at)
         : rows <= 128 ? launch_rows<128>(args, result, at)
         : rows <= 160 ? launch_rows<160>(args, result, at)
         : rows <= 192 ? launch_rows<192>(args, result, at)
         : rows <= 224 ? launch_rows<224>(args, result, at)
                       : launch_rows<kTileRowsMax>(args, result, at);
}

}  // namespace llmrt::cuda
