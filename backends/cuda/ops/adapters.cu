// adapter_shrink: y = A x. adapter_expand: out += B y, scaled. Both for the rows of a step that have an adapter.
//
// Shrink: a block has 16 ranks of an item's adapter, up to kTiles times 8 of its rows, and a part of the columns, of
// which its warps have a run each. A and x come from memory straight into the lanes that multiply them, 16 bytes at a
// time, so that lane t of four has the same columns of both. Products in f16 with sums in f32 in the order of the
// columns; what the warps have is added in their order, then what the blocks of the cluster have in theirs. So a row's
// sums depend on nothing but the row, its adapter and the device. x of other types is multiplied in f32, likewise.
//
// Expand: a thread makes one number of out for eight rows at a time, which share its row of B, then one further on; y
// stands in shared memory. Sums in f32 in the order of the ranks.
//
// A step's items are data: the grid is made for the most pieces that rows may be cut into, and a block whose piece is
// not there leaves. The pool is written between steps alone, so that A and B are read ahead of the kernel before.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <type_traits>

#include "backends/cuda/choose.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/numbers.cuh"
#include "backends/cuda/ops/adapters.cuh"
#include "backends/cuda/reduce.cuh"
#include "core/ops/adapter_ops.h"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kTileRanks = 16, kTileRows = 8, kTileSums = kTileRanks * kTileRows;
constexpr uint32_t kShrinkWarps = 8, kShrinkThreads = kShrinkWarps * kWarp;
constexpr uint32_t kShrinkColumns = 32;      // of a step of a warp
constexpr uint32_t kShrinkRankTilesMax = 4;  // of a grid; blocks go on to further ones
constexpr uint32_t kShrinkBlocksMax = 8;     // of a cluster
constexpr uint32_t kExpandThreads = 128, kExpandRows = 8;
constexpr uint32_t kExpandBlocksSm = 32;   // of a grid, for each multiprocessor, where there are rows enough
constexpr uint32_t kFewAdapterRows = 128;  // of a list: pieces of eight rows, which make more blocks
constexpr uint32_t kManyTiles = 4;         // of longer lists' pieces

// ---- shrink --------------------------------------------------------------------------------------------------------

// What lane 4 g + t of a warp has: ranks g and g + 8 of a tile, in each step eight columns.
struct ShrinkLane {
  uint32_t g, t;
  __device__ ShrinkLane() : g(threadIdx.x % kWarp / 4), t(threadIdx.x % 4) {}
};

// A warp's run of steps over 16 ranks of A, the next kAhead steps under way.
template <uint32_t kAhead>
struct ShrinkA {
  const __half* upper;  // this lane's rows of A
  const __half* lower;  // null: the tile has eight ranks
  uint32_t columns, step, end;
  uint4 next[kAhead][2];

  __device__ void fetch(uint32_t i, uint32_t at, const ShrinkLane& lane) {
    const uint32_t column = at * kShrinkColumns + lane.t * 8;
    const bool has = at < end && column < columns;
    next[i][0] = has ? load_streaming(upper + column) : uint4{};
    next[i][1] = has && lower ? load_streaming(lower + column) : uint4{};
  }
  __device__ void begin(const ShrinkLane& lane) {
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) fetch(i, step + i, lane);
  }
};

// Where the rows of a piece begin in x; rows that are not there: null.
template <class X, uint32_t kTiles>
struct ShrinkX {
  static constexpr bool kIsHalf = std::is_same_v<X, __half>;
  static constexpr uint32_t kRows = kIsHalf ? kTiles : kTileRows;  // that a lane reads
  const X* rows[kRows];

  __device__ ShrinkX(const X* x, const AdapterPiece& piece, uint32_t columns, const ShrinkLane& lane) {
#pragma unroll
    for (uint32_t n = 0; n < kRows; ++n) {
      const uint32_t row = kIsHalf ? n * kTileRows + lane.g : n;
      rows[n] = row < piece.count ? x + uint64_t{piece.rows[row].row} * columns : nullptr;
    }
  }
};

// The warp's sums as mma_16x8x16 leaves them.
template <uint32_t kTiles, uint32_t kAhead>
__device__ void multiply_shrink(ShrinkA<kAhead>& a, const ShrinkX<__half, kTiles>& x, const ShrinkLane& lane,
                                float (&sums)[kTiles][4]) {
  for (; a.step < a.end; a.step += kAhead) {
    uint4 b[kAhead][kTiles];
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t column = (a.step + i) * kShrinkColumns + lane.t * 8;
      const bool has = a.step + i < a.end && column < a.columns;
#pragma unroll
      for (uint32_t n = 0; n < kTiles; ++n)
        b[i][n] = has && x.rows[n] ? *reinterpret_cast<const uint4*>(x.rows[n] + column) : uint4{};
    }
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      if (a.step + i >= a.end) break;
      const uint4 upper = a.next[i][0], lower = a.next[i][1];
#pragma unroll
      for (uint32_t n = 0; n < kTiles; ++n) {
        mma_16x8x16(sums[n], {upper.x, lower.x, upper.y, lower.y}, {b[i][n].x, b[i][n].y});
        mma_16x8x16(sums[n], {upper.z, lower.z, upper.w, lower.w}, {b[i][n].z, b[i][n].w});
      }
      a.fetch(i, a.step + kAhead + i, lane);
    }
  }
}

// The same of x in f32 or bf16, without matrix units: a lane has sums of its columns for all rows.
template <class X, uint32_t kTiles, uint32_t kAhead>
__device__ void multiply_shrink(ShrinkA<kAhead>& a, const ShrinkX<X, kTiles>& x, const ShrinkLane& lane,
                                float (&sums)[kTiles][4]) {
  static_assert(kTiles == 1);
  float own[kTileRows][2] = {};
  for (; a.step < a.end; a.step += kAhead) {
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      const uint32_t column = (a.step + i) * kShrinkColumns + lane.t * 8;
      if (a.step + i < a.end && column < a.columns) {
        float upper[8], lower[8];
        eight_halves(a.next[i][0], upper);
        eight_halves(a.next[i][1], lower);
#pragma unroll
        for (uint32_t n = 0; n < kTileRows; ++n) {
          if (!x.rows[n]) break;
          const Vec<X, 8> eight = *reinterpret_cast<const Vec<X, 8>*>(x.rows[n] + column);
#pragma unroll
          for (uint32_t j = 0; j < 8; ++j) {
            own[n][0] = fmaf(upper[j], to_float(eight.v[j]), own[n][0]);
            own[n][1] = fmaf(lower[j], to_float(eight.v[j]), own[n][1]);
          }
        }
      }
      a.fetch(i, a.step + kAhead + i, lane);
    }
  }
#pragma unroll
  for (uint32_t n = 0; n < kTileRows; ++n)
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      float sum = own[n][half];
      sum += __shfl_xor_sync(kFullMask, sum, 1);
      sum += __shfl_xor_sync(kFullMask, sum, 2);
      if (n / 2 == lane.t) sums[0][half * 2 + n % 2] = sum;
    }
}

// gridDim.y is the cluster's size.
template <class X, uint32_t kTiles>
__global__ void __launch_bounds__(kShrinkThreads, kTiles == 1 && std::is_same_v<X, __half> ? 4 : 2)
    adapter_shrink_kernel(const AdapterArgs args, const X* x, float* y, uint32_t columns, uint32_t y_columns) {
  constexpr uint32_t kAhead = 2, kSums = kTiles * kTileSums;
  float* parts = reinterpret_cast<float*>(dynamic_shared());  // [warp][tile][lane][4]
  float* totals = parts + kShrinkWarps * kSums;               // of the block
  const uint32_t warp = threadIdx.x / kWarp;
  const ShrinkLane lane;
  const AdapterPiece piece = find_piece(args, blockIdx.z, kTiles * kTileRows);
  const uint32_t rank = piece.count > 0 ? piece.entry->rank : 0;
  const __half* matrix = rank > 0 ? pool_numbers(args, piece.entry->a_offset) : nullptr;
  // The warp's run, by the shape of A alone.
  const uint32_t num_steps = (columns + kShrinkColumns - 1) / kShrinkColumns, num_runs = gridDim.y * kShrinkWarps;
  const uint32_t run = blockIdx.y * kShrinkWarps + warp;
  const auto a_of = [&](uint32_t rank_first) {
    ShrinkA<kAhead> a;
    a.upper = matrix + uint64_t{rank_first + lane.g} * columns;
    a.lower = rank_first + 8 < rank ? a.upper + uint64_t{8} * columns : nullptr;
    a.columns = columns;
    a.step = num_steps * run / num_runs;
    a.end = num_steps * (run + 1) / num_runs;
    a.begin(lane);
    return a;
  };
  uint32_t rank_first = blockIdx.x * kTileRanks;
  ShrinkA<kAhead> a;
  if (rank_first < rank) a = a_of(rank_first);
  grid_dependency_wait();
  if (rank_first >= rank) return;  // the whole cluster
  const ShrinkX<X, kTiles> own_x(x, piece, columns, lane);
  while (true) {
    float sums[kTiles][4] = {};
    multiply_shrink(a, own_x, lane, sums);
#pragma unroll
    for (uint32_t n = 0; n < kTiles; ++n)
      *reinterpret_cast<float4*>(parts + warp * kSums + n * kTileSums + threadIdx.x % kWarp * 4) = {
          sums[n][0], sums[n][1], sums[n][2], sums[n][3]};
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < kSums; i += kShrinkThreads) {
      float sum = 0;
#pragma unroll
      for (uint32_t w = 0; w < kShrinkWarps; ++w) sum += parts[w * kSums + i];
      totals[i] = sum;
    }
    cluster_sync();
    for (uint32_t i = blockIdx.y * kShrinkThreads + threadIdx.x; i < kSums; i += gridDim.y * kShrinkThreads) {
      const uint32_t l = i % kTileSums / 4, c = i % 4;
      const uint32_t row = i / kTileSums * kTileRows + 2 * (l % 4) + c % 2, to = rank_first + l / 4 + c / 2 * 8;
      if (row >= piece.count || to >= rank) continue;
      float sum = 0;
      for (uint32_t b = 0; b < gridDim.y; ++b) sum += load_cluster(totals + i, b);
      y[uint64_t{piece.rows[row].row} * y_columns + to] = sum;
    }
    rank_first += gridDim.x * kTileRanks;
    if (rank_first < rank) a = a_of(rank_first);
    cluster_sync();  // nobody writes there or leaves while others read its sums
    if (rank_first >= rank) return;
  }
}

// ---- expand --------------------------------------------------------------------------------------------------------

// What a thread has of B: row n, and what is done with its sums.
struct ExpandB {
  static constexpr uint32_t kAhead = 2;  // eights of ranks that are read early
  const uint4* row = nullptr;
  uint32_t eights = 0;      // of ranks; 0: nothing is added
  uint32_t rank_begin = 0;  // in y
  float scale = 0;
  uint4 ahead[kAhead] = {};

  __device__ void load(const AdapterArgs& args, const AdapterEntry& entry, uint32_t n, uint32_t columns) {
    eights = 0;
    if (n >= columns) return;
    const EntryPart part = part_of(entry, n);
    eights = (part.rank_end - part.rank_begin) / 8;
    if (eights == 0) return;
    rank_begin = part.rank_begin;
    scale = entry.scale[part.index];
    row = reinterpret_cast<const uint4*>(pool_numbers(args, entry.b_offset[part.index])) +
          uint64_t{n - part.row_begin} * eights;
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) ahead[i] = i < eights ? row[i] : uint4{};
  }
};

// out[n] of so many rows, whose y stand in shared memory.
__device__ void expand_rows(const ExpandB& b, const float* shared_y, uint32_t num_ranks, const AdapterRow* rows,
                            uint32_t count, float* out, uint32_t columns) {
  float before[kExpandRows], sums[kExpandRows] = {};
#pragma unroll
  for (uint32_t r = 0; r < kExpandRows; ++r) before[r] = r < count ? out[uint64_t{rows[r].row} * columns] : 0.0f;
  uint4 here = b.ahead[0], next = b.ahead[1];
  const float* from = shared_y + b.rank_begin;
  for (uint32_t eight = 0; eight < b.eights; ++eight, from += 8) {
    float w[8];
    eight_halves(here, w);
    here = next;
    next = eight + 2 < b.eights ? b.row[eight + 2] : uint4{};
#pragma unroll
    for (uint32_t r = 0; r < kExpandRows; ++r) {
      if (r >= count) break;
      const float4 y0 = *reinterpret_cast<const float4*>(from + r * num_ranks);
      const float4 y1 = *reinterpret_cast<const float4*>(from + r * num_ranks + 4);
      const float y[8] = {y0.x, y0.y, y0.z, y0.w, y1.x, y1.y, y1.z, y1.w};
#pragma unroll
      for (uint32_t j = 0; j < 8; ++j) sums[r] = fmaf(w[j], y[j], sums[r]);
    }
  }
#pragma unroll
  for (uint32_t r = 0; r < kExpandRows; ++r)
    if (r < count) out[uint64_t{rows[r].row} * columns] = fmaf(rows[r].scale * b.scale, sums[r], before[r]);
}

// kBatches: how often a piece has kExpandRows rows. A block takes every gridDim.x-th run of kExpandThreads numbers.
template <uint32_t kBatches>
__global__ void __launch_bounds__(kExpandThreads)
    adapter_expand_kernel(const AdapterArgs args, const float* y, float* out, uint32_t y_columns, uint32_t columns) {
  float* shared_y = reinterpret_cast<float*>(dynamic_shared());  // [row][rank of all parts]
  const AdapterPiece piece = find_piece(args, blockIdx.y, kBatches * kExpandRows);
  const uint32_t first = blockIdx.x * kExpandThreads + threadIdx.x, stride = gridDim.x * kExpandThreads;
  const uint32_t num_ranks = piece.count > 0 ? piece.entry->rank : 0;
  ExpandB b;
  if (num_ranks > 0) b.load(args, *piece.entry, first, columns);
  grid_dependency_wait();
  if (num_ranks == 0) return;
  for (uint32_t batch = 0; batch < kBatches && batch * kExpandRows < piece.count; ++batch) {
    const AdapterRow* rows = piece.rows + batch * kExpandRows;
    const uint32_t count = min(kExpandRows, piece.count - batch * kExpandRows), fours = num_ranks / 4;
    if (batch > 0) __syncthreads();
    for (uint32_t i = threadIdx.x; i < count * fours; i += kExpandThreads)
      reinterpret_cast<float4*>(shared_y)[i] =
          *reinterpret_cast<const float4*>(y + uint64_t{rows[i / fours].row} * y_columns + i % fours * 4);
    __syncthreads();
    for (uint32_t n = first; n < columns; n += stride) {
      const ExpandB own = b;
      // The next run's numbers; behind the last one the first again, for the next batch.
      const uint32_t next = n + stride < columns ? n + stride : first;
      if (next != n) b.load(args, *piece.entry, next, columns);
      if (own.eights > 0) expand_rows(own, shared_y, num_ranks, rows, count, out + n, columns);
    }
  }
}

// ---- launches ------------------------------------------------------------------------------------------------------

// The most pieces that the items of a list of so many rows are cut into.
uint32_t pieces_max(uint32_t rows, uint32_t most) {
  const uint32_t items = std::min(rows, kAdapterSlotsMax + rows / kAdapterItemRows);
  return std::min(rows, items + rows / most);
}

// By the shape of A and the device alone, as is the order of sums: a warp of every block has a step or two.
uint32_t shrink_blocks(uint32_t columns, const DeviceFacts& device) {
  if (!device.has_clusters) return 1;
  return std::min(std::bit_floor(std::max(columns / (kShrinkWarps * kShrinkColumns * 2), 1u)), kShrinkBlocksMax);
}

uint32_t tiles_of(const OpList& list, TensorId x) {
  return list.rows_of(x) <= kFewAdapterRows ? 1 : kManyTiles;
}

}  // namespace

Status choose(const AdapterShrink& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  const TensorDesc &x = list.tensors[static_cast<size_t>(op.x)], &y = list.tensors[static_cast<size_t>(op.y)];
  const uint32_t tiles = x.dtype == DType::kF16 ? tiles_of(list, op.x) : 1;
  KernelChoice choice{.kernel = "adapter_shrink", .threads = kShrinkThreads};
  choice.variant = fmt::format("{} x{}", dtype_name(x.dtype), tiles * kTileRows);
  choice.cluster = shrink_blocks(x.columns, inputs.device);
  choice.grid = {std::min(ceil_div(y.columns, kTileRanks), kShrinkRankTilesMax), choice.cluster,
                 pieces_max(list.rows_of(op.x), tiles * kTileRows)};
  choice.shared_bytes = (kShrinkWarps + 1) * tiles * kTileSums * 4;
  add_launch(out, choice, [op, tiles](const KernelChoice& c, const OpContext& at) -> Status {
    AdapterArgs args;
    if (Status status = make_args(op.group, at.desc(op.x).rows == Rows::kSampled, at, &args); !status) return status;
    const uint32_t columns = at.desc(op.x).columns, y_columns = at.desc(op.y).columns;
    if (tiles > 1)
      return launch(at, c, adapter_shrink_kernel<__half, kManyTiles>, args, at.tensor<__half>(op.x),
                    at.tensor<float>(op.y), columns, y_columns);
    return with_float_type(at.desc(op.x).dtype, "adapter_shrink x", [&](auto type) {
      using X = decltype(type);
      return launch(at, c, adapter_shrink_kernel<X, 1>, args, at.tensor<X>(op.x), at.tensor<float>(op.y), columns,
                    y_columns);
    });
  });
  return {};
}

Status choose(const AdapterExpand& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  const uint32_t columns = list.tensors[static_cast<size_t>(op.out)].columns, tiles = tiles_of(list, op.y);
  const uint32_t ranks = std::min(list.tensors[static_cast<size_t>(op.y)].columns, kAdapterPartsMax * kAdapterRankMax);
  KernelChoice choice{.kernel = "adapter_expand", .threads = kExpandThreads};
  choice.variant = fmt::format("x{}", tiles * kExpandRows);
  // Where rows have an adapter each, longer runs for a block: what stands around them takes as long for short ones.
  const uint32_t pieces = pieces_max(list.rows_of(op.y), tiles * kExpandRows);
  const uint32_t runs = std::max(ceil_div(inputs.device.num_sms * kExpandBlocksSm, pieces), 1u);
  choice.grid = {std::min(ceil_div(columns, kExpandThreads), runs), pieces};
  choice.shared_bytes = kExpandRows * ranks * 4;
  add_launch(out, choice, [op, tiles](const KernelChoice& c, const OpContext& at) -> Status {
    AdapterArgs args;
    if (Status status = make_args(op.group, at.desc(op.y).rows == Rows::kSampled, at, &args); !status) return status;
    return launch(at, c, tiles > 1 ? adapter_expand_kernel<kManyTiles> : adapter_expand_kernel<1>, args,
                  at.tensor<float>(op.y), at.tensor<float>(op.out), at.desc(op.y).columns, at.desc(op.out).columns);
  });
  return {};
}

}  // namespace llmrt::cuda
