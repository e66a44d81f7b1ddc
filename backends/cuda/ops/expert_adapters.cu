// expert_shrink: y = A x. expert_term: what B y adds to gate and other half. expert_expand: out += the weighted sum of
// a row's B y. For the routed rows whose row has an adapter that changes their expert.
//
// Two routed rows hardly share an adapter and an expert, so each reads its own matrices. Shrink: a warp makes four
// ranks of one routed row, lanes stride over the columns eight at a time; sums in f32 by lane, then over the warp.
// Expand and term: a thread makes one number of a routed row, or of a row with all its experts in their order; sums in
// f32 in the order of the ranks. So a row's numbers depend on nothing but the row, its experts and its adapter.
//
// The grid is made for as many rows with adapters as the list has rows; a block whose row is not there leaves.
#include <algorithm>

#include "backends/cuda/choose.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/adapters.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kExpertShrinkWarps = 4, kExpertShrinkRanks = 4;  // of a warp at a time
constexpr uint32_t kExpertShrinkTilesMax = 4;                       // of a grid; blocks go on to further ranks
constexpr uint32_t kExpertExpandThreads = 128;
constexpr uint32_t kExpertExpandTilesMax = 16;
constexpr uint32_t kClearThreads = 256, kClearBlocksMax = 1024;

struct ExpertAdapterArgs {
  AdapterArgs adapters;
  const int32_t* ids;
  uint32_t per_row;
};

// Row number `index` of those that have an adapter, and that adapter's matrices of an expert.
struct AdaptedExpert {
  AdapterPiece piece;

  __device__ AdaptedExpert(const ExpertAdapterArgs& args, uint32_t index)
      : piece(find_piece(args.adapters, index, 1)) {}
  __device__ bool is_there() const { return piece.count > 0 && piece.entry->rank > 0; }
  __device__ uint32_t row() const { return piece.rows[0].row; }
  // The expert of routed row k, counted from the first that the adapter changes; false: it leaves that one as it is.
  __device__ bool expert_of(const ExpertAdapterArgs& args, uint32_t k, uint32_t* expert) const {
    *expert = static_cast<uint32_t>(args.ids[k]) - piece.entry->expert_first;  // wraps below 0
    return *expert < piece.entry->num_experts;
  }
};

__device__ inline const __half* expert_numbers(const ExpertAdapterArgs& args, uint32_t offset, uint32_t stride,
                                               uint32_t expert) {
  return pool_numbers(args.adapters, offset) + uint64_t{expert} * stride * (kAdapterAlignment / sizeof(__half));
}

// Block (ranks, routed row of the row, row).
template <class X>
__global__ void __launch_bounds__(kExpertShrinkWarps* kWarp)
    expert_shrink_kernel(const ExpertAdapterArgs args, const X* x, bool x_is_routed, float* y, uint32_t columns,
                         uint32_t y_columns) {
  const AdaptedExpert adapted(args, blockIdx.z);
  grid_dependency_wait();
  if (!adapted.is_there()) return;
  const AdapterEntry& entry = *adapted.piece.entry;
  const uint32_t row = adapted.row(), k = row * args.per_row + blockIdx.y;
  uint32_t expert;
  if (!adapted.expert_of(args, k, &expert)) return;
  const __half* a = expert_numbers(args, entry.a_offset, entry.a_stride, expert);
  const X* from = x + uint64_t{x_is_routed ? k : row} * columns;
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t stride = gridDim.x * kExpertShrinkWarps * kExpertShrinkRanks;
  for (uint32_t rank = (blockIdx.x * kExpertShrinkWarps + warp) * kExpertShrinkRanks; rank < entry.rank;
       rank += stride) {
    float sums[kExpertShrinkRanks] = {};
    for (uint32_t column = lane * 8; column < columns; column += kWarp * 8) {
      const Vec<X, 8> eight = *reinterpret_cast<const Vec<X, 8>*>(from + column);
#pragma unroll
      for (uint32_t r = 0; r < kExpertShrinkRanks; ++r) {
        float numbers[8];
        eight_halves(*reinterpret_cast<const uint4*>(a + uint64_t{rank + r} * columns + column), numbers);
#pragma unroll
        for (uint32_t j = 0; j < 8; ++j) sums[r] = fmaf(numbers[j], to_float(eight.v[j]), sums[r]);
      }
    }
#pragma unroll
    for (uint32_t r = 0; r < kExpertShrinkRanks; ++r) {
      const float sum = warp_sum(sums[r]);
      if (lane == 0) y[uint64_t{k} * y_columns + rank + r] = sum;
    }
  }
}

// B y of number n of a routed row, with the part's scale.
__device__ inline float expanded_number(const ExpertAdapterArgs& args, const AdapterEntry& entry, uint32_t expert,
                                        uint32_t n, const float* y) {
  const EntryPart part = part_of(entry, n);
  const uint32_t eights = (part.rank_end - part.rank_begin) / 8;
  if (eights == 0) return 0;
  const uint4* b = reinterpret_cast<const uint4*>(
                       expert_numbers(args, entry.b_offset[part.index], entry.b_stride[part.index], expert)) +
                   uint64_t{n - part.row_begin} * eights;
  float sum = 0;
  for (uint32_t i = 0; i < eights; ++i) {
    float numbers[8];
    eight_halves(b[i], numbers);
    const float4* from = reinterpret_cast<const float4*>(y + part.rank_begin + i * 8);
    const float4 y0 = from[0], y1 = from[1];
    const float eight[8] = {y0.x, y0.y, y0.z, y0.w, y1.x, y1.y, y1.z, y1.w};
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) sum = fmaf(numbers[j], eight[j], sum);
  }
  return entry.scale[part.index] * sum;
}

// Zeros in all live routed rows, in front of those that expert_term_kernel writes.
__global__ void __launch_bounds__(kClearThreads)
    clear_terms_kernel(float* out, uint32_t per_row, uint32_t columns, const uint32_t* live) {
  grid_dependency_wait();
  const uint64_t count = uint64_t{*live} * per_row * columns;
  for (uint64_t i = uint64_t{blockIdx.x} * kClearThreads + threadIdx.x; i < count; i += gridDim.x * kClearThreads)
    out[i] = 0;
}

// Block (numbers, routed row of the row, row).
__global__ void __launch_bounds__(kExpertExpandThreads)
    expert_term_kernel(const ExpertAdapterArgs args, const float* y, float* out, uint32_t y_columns, uint32_t columns) {
  const AdaptedExpert adapted(args, blockIdx.z);
  grid_dependency_wait();
  if (!adapted.is_there()) return;
  const uint32_t k = adapted.row() * args.per_row + blockIdx.y;
  uint32_t expert;
  if (!adapted.expert_of(args, k, &expert)) return;
  for (uint32_t n = blockIdx.x * kExpertExpandThreads + threadIdx.x; n < columns; n += gridDim.x * kExpertExpandThreads)
    out[uint64_t{k} * columns + n] = adapted.piece.rows[0].scale * expanded_number(args, *adapted.piece.entry, expert,
                                                                                   n, y + uint64_t{k} * y_columns);
}

// Block (numbers, row).
__global__ void __launch_bounds__(kExpertExpandThreads)
    expert_expand_kernel(const ExpertAdapterArgs args, const float* y, const float* weights, float* out,
                         uint32_t y_columns, uint32_t columns) {
  const AdaptedExpert adapted(args, blockIdx.y);
  grid_dependency_wait();
  if (!adapted.is_there()) return;
  const uint32_t first = adapted.row() * args.per_row;
  for (uint32_t n = blockIdx.x * kExpertExpandThreads + threadIdx.x; n < columns;
       n += gridDim.x * kExpertExpandThreads) {
    float sum = 0;
    for (uint32_t k = first; k < first + args.per_row; ++k) {
      uint32_t expert;
      if (!adapted.expert_of(args, k, &expert)) continue;
      sum = fmaf(weights[k], expanded_number(args, *adapted.piece.entry, expert, n, y + uint64_t{k} * y_columns), sum);
    }
    float* to = out + uint64_t{adapted.row()} * columns + n;
    *to = fmaf(adapted.piece.rows[0].scale, sum, *to);
  }
}

Status make_expert_args(int32_t group, TensorId ids, const OpContext& at, ExpertAdapterArgs* args) {
  args->ids = at.tensor<int32_t>(ids);
  args->per_row = at.list->routed_per_row;
  return make_args(group, at.list->num_sampled > 0, at, &args->adapters);
}

uint32_t list_rows(const OpList& list, TensorId ids) {
  return list.rows_of(ids) / list.routed_per_row;
}

uint32_t expand_tiles(uint32_t columns) {
  return std::min(ceil_div(columns, kExpertExpandThreads), kExpertExpandTilesMax);
}

}  // namespace

Status choose(const ExpertShrink& op, const OpList& list, const CompileInputs&, Launches* out) {
  const TensorDesc &x = list.tensors[static_cast<size_t>(op.x)], &y = list.tensors[static_cast<size_t>(op.y)];
  KernelChoice choice{.kernel = "expert_shrink", .variant = dtype_name(x.dtype)};
  choice.threads = kExpertShrinkWarps * kWarp;
  choice.grid = {std::min(ceil_div(y.columns, kExpertShrinkWarps * kExpertShrinkRanks), kExpertShrinkTilesMax),
                 list.routed_per_row, list_rows(list, op.ids)};
  add_launch(out, choice, [op](const KernelChoice& c, const OpContext& at) -> Status {
    ExpertAdapterArgs args;
    if (Status status = make_expert_args(op.group, op.ids, at, &args); !status) return status;
    const TensorDesc& from = at.desc(op.x);
    return with_float_type(from.dtype, "expert_shrink x", [&](auto type) {
      using X = decltype(type);
      return launch(at, c, expert_shrink_kernel<X>, args, at.tensor<X>(op.x), from.rows == Rows::kRouted,
                    at.tensor<float>(op.y), from.columns, at.desc(op.y).columns);
    });
  });
  return {};
}

Status choose(const ExpertTerm& op, const OpList& list, const CompileInputs&, Launches* out) {
  const uint32_t columns = list.tensors[static_cast<size_t>(op.out)].columns;
  KernelChoice clear{.kernel = "clear_terms", .threads = kClearThreads};
  clear.grid = {std::min(ceil_div(list.rows_of(op.out) * columns, kClearThreads), kClearBlocksMax)};
  add_launch(out, clear, [op](const KernelChoice& c, const OpContext& at) -> Status {
    return launch(at, c, clear_terms_kernel, at.tensor<float>(op.out), at.list->routed_per_row, at.desc(op.out).columns,
                  at.list->num_sampled > 0 ? at.sample_inputs + kSmpNumRecords : at.forward_inputs + kFwdNumTokens);
  });
  KernelChoice choice{.kernel = "expert_term", .threads = kExpertExpandThreads};
  choice.grid = {expand_tiles(columns), list.routed_per_row, list_rows(list, op.ids)};
  add_launch(out, choice, [op](const KernelChoice& c, const OpContext& at) -> Status {
    ExpertAdapterArgs args;
    if (Status status = make_expert_args(op.group, op.ids, at, &args); !status) return status;
    return launch(at, c, expert_term_kernel, args, at.tensor<float>(op.y), at.tensor<float>(op.out),
                  at.desc(op.y).columns, at.desc(op.out).columns);
  });
  return {};
}

Status choose(const ExpertExpand& op, const OpList& list, const CompileInputs&, Launches* out) {
  KernelChoice choice{.kernel = "expert_expand", .threads = kExpertExpandThreads};
  choice.grid = {expand_tiles(list.tensors[static_cast<size_t>(op.out)].columns), list_rows(list, op.ids)};
  add_launch(out, choice, [op](const KernelChoice& c, const OpContext& at) -> Status {
    ExpertAdapterArgs args;
    if (Status status = make_expert_args(op.group, op.ids, at, &args); !status) return status;
    return launch(at, c, expert_expand_kernel, args, at.tensor<float>(op.y), at.tensor<float>(op.weights),
                  at.tensor<float>(op.out), at.desc(op.y).columns, at.desc(op.out).columns);
  });
  return {};
}

}  // namespace llmrt::cuda
