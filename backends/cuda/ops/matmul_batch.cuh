// What matmul_batch.cu (products of warps) and matmul_batch_groups.cu (of warpgroups) have in common: out[r][n] = sum
// over k of x[r][k] * W[n][k] + bias[n] of quantised weights for 9 to 64 rows; x f16 [rows, K], W [N, K] packed, K a
// multiple of 256.
//
// Work is counted in stages, two steps (256 columns) of a tile of 128 outputs n, and dealt out evenly over as many
// blocks as the device holds, or a few less where then none has parts of two tiles. A warp copies packed weights and x
// to a ring in shared memory by the copy engine, as far ahead as there is room, weights also before the kernel that
// writes x has ended; the others multiply. Where the results go through a gated activation, a tile is 64 outputs of the
// gate and the 64 of the other half that belong to them.
//
// A tile's stages that came to several blocks are joined by the last of them to arrive, which adds all in their order.
#pragma once

#include <algorithm>

#include "backends/cuda/activation.cuh"
#include "backends/cuda/arrival.cuh"
#include "backends/cuda/dequant.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/matmul.h"
#include "backends/cuda/reduce.cuh"
#include "backends/cuda/warpgroup.cuh"

namespace llmrt::cuda::batch {

inline constexpr uint32_t kTileOut = 128, kHalfOut = kTileOut / 2;
inline constexpr uint32_t kStageSteps = 2, kStageColumns = kStageSteps * kStep;
inline constexpr uint32_t kStepUnits = kStep / kUnit;
inline constexpr uint32_t kSharedBytesMax = 226 << 10;
inline constexpr uint32_t kBoxRowBytes = 128, kBoxBytes = kTileOut * kBoxRowBytes;

struct Args {
  PackedMatrix weight;
  const float* bias;
  std::byte* out;
  uint32_t out_stride;
  bool in_fours;  // of outputs, 16 bytes of f32, are stored at once
  MatmulResult result;
  Activation activation;
  const uint32_t* live;
  float4* partials;  // [blocks][2: of a tile that an earlier block began, of one that this block begins][S::kFours]
  uint32_t* counters;

  __host__ __device__ uint32_t num_tiles() const {
    if (result != MatmulResult::kGated) return (weight.rows + kTileOut - 1) / kTileOut;
    return (weight.rows / 2 + kHalfOut - 1) / kHalfOut;
  }
  // The row of W that a half of a tile begins with.
  __device__ uint32_t half_row(uint32_t tile, uint32_t half) const {
    if (result != MatmulResult::kGated) return tile * kTileOut + half * kHalfOut;
    return tile * kHalfOut + half * (weight.rows / 2);
  }
};

// What copies read: x and the planes of the weights but q6_k's last, of which a stage has 2 bytes a row.
struct Maps {
  RowMap x, plane[3];
};

// What a stage of the ring holds: boxes of 128 bytes of each row of the first plane, the other planes row by row, boxes
// of 64 columns of x. Way: kGroups of kGroupWarps warps multiply, each its part of a stage's columns; their sums meet
// in shared memory, kSumRows rows (all, or a multiple of the warps) of kSumStride numbers at a time.
template <Encoding E, uint32_t kRows_, class Way_>
struct Stage {
  using Way = Way_;
  static constexpr uint32_t kRows = kRows_, kGroups = Way::kGroups;
  static constexpr uint32_t kWarps = kGroups * Way::kGroupWarps;
  static constexpr uint32_t kMultiplyThreads = kWarps * kWarp, kThreads = kMultiplyThreads + Way::kCopyThreads;
  static constexpr uint32_t row_bytes(uint32_t plane) { return kStageSteps * step_bytes(E).plane[plane]; }
  static constexpr uint32_t kBoxes = row_bytes(0) / kBoxRowBytes;
  static constexpr uint32_t kSecondFirst = kBoxes * kBoxBytes;
  static constexpr uint32_t kScalesFirst = kSecondFirst + kTileOut * row_bytes(1);
  static constexpr uint32_t kXFirst = kScalesFirst + kTileOut * row_bytes(2);
  static constexpr uint32_t kXBoxBytes = kRows * kBoxRowBytes, kXBoxes = kStageColumns / 64;
  static constexpr uint32_t kBytes = kXFirst + kXBoxes * kXBoxBytes;
  static constexpr uint32_t kSumRows = Way::kSumRows, kSumStride = Way::kSumStride;
  static constexpr uint32_t kSumBytes = kGroups * kSumRows * kSumStride * 4;
  // Stages stand at multiples of 1024 bytes, which dynamic shared memory need not.
  static constexpr uint32_t kOtherBytes = 1024 + kSumBytes + 256;
  static constexpr uint32_t kStages = (kSharedBytesMax - kOtherBytes) / kBytes;
  static constexpr uint32_t kSharedBytes = kStages * kBytes + kOtherBytes;
  static constexpr uint32_t kRowFours = kTileOut / 4, kFours = kRows * kRowFours;
  static constexpr uint32_t kThreadFours = ceil_div(kRows, kWarps), kSumFours = ceil_div(kSumRows, kWarps);
  static_assert(kRowFours == kWarp && (kSumRows == kRows || kSumRows % kWarps == 0) && kStages >= 2);
};

template <class S>
struct Shared {
  uint8_t* stages;
  float* sums;            // [S::kGroups][S::kSumRows][S::kSumStride]
  uint64_t *full, *free;  // [S::kStages]
  uint32_t* is_last;
};

// The stages [begin, end) of a block, and which block has a stage.
struct Deal {
  uint32_t tile_stages, num_stages;

  __device__ explicit Deal(const Args& args)
      : tile_stages(args.weight.columns / kStageColumns), num_stages(args.num_tiles() * tile_stages) {}
  __device__ uint32_t begin(uint32_t block) const { return num_stages * block / gridDim.x; }
  __device__ uint32_t block_of(uint32_t stage) const { return ((stage + 1) * gridDim.x - 1) / num_stages; }
};

// ---- copies --------------------------------------------------------------------------------------------------------

// Rows from `row` on, half a tile.
template <class S>
__device__ void copy_weights(uint8_t* stage, const Maps& maps, uint32_t half, uint32_t row, uint32_t stage_idx,
                             uint64_t* full) {
  const auto copy = [&](const RowMap& map, uint32_t first, uint32_t row_bytes, uint32_t column) {
    copy_rows<1>(stage + first + half * kHalfOut * row_bytes, map, column, row, full);
  };
  const auto column = [&](uint32_t row_bytes) { return stage_idx * row_bytes / 2; };  // maps are of f16
#pragma unroll
  for (uint32_t i = 0; i < S::kBoxes; ++i)
    copy(maps.plane[0], i * kBoxBytes, kBoxRowBytes, column(S::row_bytes(0)) + i * 64);
  if constexpr (S::row_bytes(1) > 0) copy(maps.plane[1], S::kSecondFirst, S::row_bytes(1), column(S::row_bytes(1)));
  copy(maps.plane[2], S::kScalesFirst, S::row_bytes(2), column(S::row_bytes(2)));
}

// By one thread.
template <class S>
__device__ void fill_ring(const Shared<S>& shared, const Args& args, const Maps& maps, const Deal& deal, uint32_t begin,
                          uint32_t end) {
  const auto place = [&](uint32_t n) { return (n - begin) % S::kStages; };
  const auto ask_weights = [&](uint32_t n) {
    uint64_t* full = &shared.full[place(n)];
    barrier_arrive_for_bytes(full, S::kBytes);
    for (uint32_t half = 0; half < 2; ++half)
      copy_weights<S>(shared.stages + place(n) * S::kBytes, maps, half, args.half_row(n / deal.tile_stages, half),
                      n % deal.tile_stages, full);
  };
  const auto ask_x = [&](uint32_t n) {
    copy_boxes(shared.stages + place(n) * S::kBytes + S::kXFirst, maps.x, n % deal.tile_stages * kStageColumns, 0,
               &shared.full[place(n)]);
  };
  prefetch_map(maps.x);
  const uint32_t ahead = min(end, begin + S::kStages);
  for (uint32_t n = begin; n < ahead; ++n) ask_weights(n);
  grid_dependency_wait();  // weights never change
  for (uint32_t n = begin; n < ahead; ++n) ask_x(n);
  for (uint32_t n = ahead; n < end; ++n) {
    barrier_wait(&shared.free[place(n)], ~((n - begin) / S::kStages) & 1);
    ask_weights(n);
    ask_x(n);
  }
}

// ---- results -------------------------------------------------------------------------------------------------------

// Outputs n and the three behind it of a row, of which W has `count`.
__device__ inline void store(const Args& args, uint64_t row, uint32_t n, uint32_t count, float4 sums) {
  float* out = reinterpret_cast<float*>(args.out) + row * args.out_stride + n;
  if (args.bias) {
    const auto bias = [&](uint32_t i) { return i < count ? args.bias[n + i] : 0.0f; };
    sums = {sums.x + bias(0), sums.y + bias(1), sums.z + bias(2), sums.w + bias(3)};
  }
  const bool is_added = args.result == MatmulResult::kAdded;
  if (args.in_fours && count == 4) {
    float4& place = *reinterpret_cast<float4*>(out);
    add_four(sums, is_added ? place : float4{});
    place = sums;
    return;
  }
  const float each[4] = {sums.x, sums.y, sums.z, sums.w};
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i)
    if (i < count) out[i] = each[i] + (is_added ? out[i] : 0.0f);
}

// Outputs n and the three behind it of a row, of which there are `count`.
__device__ inline void store_gated(const Args& args, uint64_t row, uint32_t n, uint32_t count, const float4& gate,
                                   const float4& up) {
  __half* out = reinterpret_cast<__half*>(args.out) + row * args.out_stride + n;
  const float gates[4] = {gate.x, gate.y, gate.z, gate.w}, ups[4] = {up.x, up.y, up.z, up.w};
  float each[4] = {};
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    const auto bias = [&](uint32_t first) { return args.bias && i < count ? args.bias[first + n + i] : 0.0f; };
    each[i] = activate(args.activation, gates[i] + bias(0)) * (ups[i] + bias(args.weight.rows / 2));
  }
  if (args.in_fours && count == 4) {
    *reinterpret_cast<uint2*>(out) = {half2_bits(__floats2half2_rn(each[0], each[1])),
                                      half2_bits(__floats2half2_rn(each[2], each[3]))};
    return;
  }
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i)
    if (i < count) out[i] = __float2half_rn(each[i]);
}

// What a thread has of a tile: in its warp's row and S::kWarps further on each, the sums at places 4 * lane to 4 * lane
// + 3.
template <class S>
struct Totals {
  float4 fours[S::kThreadFours] = {};

  // fn(row, four) for those of rows in use.
  __device__ void each(uint32_t live, auto&& fn) {
#pragma unroll
    for (uint32_t i = 0; i < S::kThreadFours; ++i) {
      const uint32_t row = i * S::kWarps + threadIdx.x / kWarp;
      if (row < live) fn(row, fours[i]);
    }
  }
};

// Adds what all blocks have of a tile, where this is the last of them to come here; else false.
template <class S>
__device__ bool join(Totals<S>& totals, const Shared<S>& shared, const Args& args, const Deal& deal, uint32_t live,
                     uint32_t tile) {
  const uint32_t first = deal.block_of(tile * deal.tile_stages);
  const uint32_t last = deal.block_of((tile + 1) * deal.tile_stages - 1);
  const auto part = [&](uint32_t block, uint32_t row) {
    return args.partials + (block * 2 + (block == first)) * S::kFours + row * S::kRowFours + threadIdx.x % kWarp;
  };
  totals.each(live, [&](uint32_t row, const float4& sums) { *part(blockIdx.x, row) = sums; });
  if (!arrives_last(args.counters + first, last - first + 1, 1, S::kMultiplyThreads, threadIdx.x == 0, shared.is_last))
    return false;
  totals = {};
#pragma unroll S::Way::kJoinAhead
  for (uint32_t block = first; block <= last; ++block)
    totals.each(live, [&](uint32_t row, float4& total) { add_four(total, __ldcg(part(block, row))); });
  return true;
}

template <class S>
__device__ void store_tile(Totals<S>& totals, const Args& args, uint32_t live, uint32_t tile) {
  const uint32_t place = threadIdx.x % kWarp * 4;
  if (args.result == MatmulResult::kGated) {
    const uint32_t n = tile * kHalfOut + place, outs = args.weight.rows / 2;
    totals.each(live, [&](uint32_t row, const float4& sums) {
      const auto other = [](float sum) { return __shfl_xor_sync(kFullMask, sum, kHalfOut / 4); };
      const float4 up = {other(sums.x), other(sums.y), other(sums.z), other(sums.w)};
      if (place < kHalfOut && n < outs) store_gated(args, row, n, min(4u, outs - n), sums, up);
    });
    return;
  }
  const uint32_t n = tile * kTileOut + place;
  totals.each(live, [&](uint32_t row, const float4& sums) {
    if (n < args.weight.rows) store(args, row, n, min(4u, args.weight.rows - n), sums);
  });
}

// Adds up a tile whose sums the warps have, and stores it, where no other block does. `write(row_first)`: what this
// warp has of S::kSumRows rows from there on, to shared memory: [S::kGroups][S::kSumRows][S::kSumStride].
template <class S>
__device__ void finish_tile(const Shared<S>& shared, const Args& args, const Deal& deal, uint32_t live, uint32_t tile,
                            bool is_whole, bool is_end, auto write) {
  const uint32_t warp = kept(threadIdx.x / kWarp), place = threadIdx.x % kWarp * 4;
  Totals<S> totals;
#pragma unroll
  for (uint32_t first = 0; first < S::kRows; first += S::kSumRows) {
    if (first > 0) {
      if (first >= live) break;
      named_barrier_wait(1, S::kMultiplyThreads);  // the rows before have been read
    }
    write(first);
    named_barrier_wait(1, S::kMultiplyThreads);
#pragma unroll
    for (uint32_t i = 0; i < S::kSumFours && first / S::kWarps + i < S::kThreadFours; ++i) {
      const uint32_t row = i * S::kWarps + warp;
      if (first + row >= live) continue;
#pragma unroll
      for (uint32_t g = 0; g < S::kGroups; ++g)
        add_four(totals.fours[first / S::kWarps + i],
                 *reinterpret_cast<const float4*>(shared.sums + (g * S::kSumRows + row) * S::kSumStride + place));
    }
  }
  if (!is_whole) {
    if (!join(totals, shared, args, deal, live, tile)) return;
  } else if (!is_end) {
    named_barrier_wait(1, S::kMultiplyThreads);  // the sums in shared memory may be written again, as behind a join
  }
  store_tile(totals, args, live, tile);
}

// ---- the kernel ----------------------------------------------------------------------------------------------------

template <Encoding E, class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    matmul_batch_kernel(const Args args, const __grid_constant__ Maps maps) {
#if defined(LLMRT_BULK_COPIES)
  uint8_t* base = dynamic_shared_at_1024();
  uint8_t* sums = base + S::kStages * S::kBytes;
  uint64_t* barriers = reinterpret_cast<uint64_t*>(sums + S::kSumBytes);
  const Shared<S> shared{base, reinterpret_cast<float*>(sums), barriers, barriers + S::kStages,
                         reinterpret_cast<uint32_t*>(barriers + 2 * S::kStages)};
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < S::kStages; ++i) {
      barrier_init(&shared.full[i], 1);
      barrier_init(&shared.free[i], S::kWarps * kWarpArrivals);
    }
    barriers_visible();
  }
  __syncthreads();
  grid_dependency_release();
  const Deal deal(args);
  const uint32_t begin = deal.begin(blockIdx.x), end = deal.begin(blockIdx.x + 1);
  if (threadIdx.x < S::kMultiplyThreads) {
    S::Way::template multiply<E, S>(shared, args, deal, begin, end);
  } else {
    S::Way::prepare_copies();
    if (threadIdx.x == S::kMultiplyThreads) fill_ring<S>(shared, args, maps, deal, begin, end);
  }
#else
  __trap();  // OpContext::has_bulk_copies says that this is not the code that runs
#endif
}

template <Encoding E, uint32_t kRows, class Way>
void lay_out_rows(const MatmulShape& shape, const CompileInputs& inputs, MatmulChoice* choice) {
  using S = Stage<E, kRows, Way>;
  Args args{};
  args.weight = shape.weight;
  args.result = choice->result;
  const uint32_t num_tiles = args.num_tiles(), num_stages = num_tiles * (shape.weight.columns / kStageColumns);
  uint32_t blocks = std::min(inputs.device.num_sms, ceil_div(num_stages, inputs.tuning.batch_stages_min));
  // So that every block has a part of one tile, where few blocks less do: to join a second one takes longer.
  const uint32_t whole = blocks / num_tiles * num_tiles;
  if (whole * 100 >= blocks * inputs.tuning.batch_whole_percent) blocks = whole;
  choice->grid = {blocks};
  choice->threads = S::kThreads;
  choice->shared_bytes = S::kSharedBytes;
  choice->stages = S::kStages;
  choice->workspace_bytes = uint64_t{blocks} * 2 * S::kFours * sizeof(float4);
}

template <Encoding E, uint32_t kRows, class Way>
Status start(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at) {
  using S = Stage<E, kRows, Way>;
  static_assert(2 * S::kStages * 8 + 4 <= 256);
  const PackedMatrix& weight = args.weight;
  Maps maps;
  const Result<RowMap> x = make_row_map(args.x, args.num_rows, weight.columns, kRows, kStageColumns);
  if (!x) return x.error();
  maps.x = *x;
  for (int p = 0; p < 3; ++p) {
    if (S::row_bytes(p) == 0) continue;
    const Result<RowMap> map = make_row_map(weight.plane[p], weight.rows, plane_row_bytes(E, p, weight.columns) / 2,
                                            kHalfOut, std::min(S::row_bytes(p) / 2, 64u));
    if (!map) return map.error();
    maps.plane[p] = *map;
  }
  const bool in_fours = args.out_stride % 4 == 0 && reinterpret_cast<uintptr_t>(args.out) % 16 == 0;
  const Args kernel_args{weight,
                         args.bias,
                         reinterpret_cast<std::byte*>(args.out),
                         args.out_stride,
                         in_fours,
                         choice.result,
                         args.activation,
                         args.live,
                         reinterpret_cast<float4*>(at.workspace.data),
                         at.workspace.counters};
  return launch(at, choice, matmul_batch_kernel<E, S>, kernel_args, maps);
}

}  // namespace llmrt::cuda::batch
