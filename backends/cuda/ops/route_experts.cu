// route_experts: scores = x W^T + bias in f32; the best experts of each row, their ids and weights (core/ops/ops.h). x
// f32 [T, D], W f32 [E, D].
//
// Products are plain f32 multiply-adds: the matrix units have none, and what they round to makes other choices. A block
// makes 64 scores (a gate of shared experts is one more expert) of 16 or 64 rows, over a part of the columns: each of
// its 256 threads has 4 scores of 1 or 4 rows, from 32 columns at a time in shared memory. The last block of some rows
// to end adds the parts in their order and chooses, a warp a row: so one kernel does it all.
//
// Up to four rows (route_experts_few) have too few multiplications for tiles: some warps of a block share the columns
// of one expert, whose weights are in registers before the kernel before has ended, and there are no parts to add.
//
// A choice is a maximum of keys: the selection score's bits, turned so that they compare as numbers, above the
// complement of the id, so that ties go to the lower one. Without a correction the scores themselves are compared:
// probabilities are monotone in them, but equal where f32 does not tell them apart.
#include <fmt/format.h>

#include <algorithm>

#include "backends/cuda/activation.cuh"
#include "backends/cuda/arrival.cuh"
#include "backends/cuda/choose.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/numbers.cuh"
#include "backends/cuda/reduce.cuh"
#include "backends/cuda/weights.h"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kRouteThreads = 256, kRouteWarps = kRouteThreads / kWarp;
constexpr uint32_t kRouteExperts = 64, kRouteColumns = 32, kRouteStride = kRouteExperts + 4;
constexpr uint32_t kGroupsMax = kWarp;

struct RouteArgs {
  const float *x, *weight, *bias, *correction, *shared_gate;
  RoutingRule rule;
  uint32_t num_experts, columns, per_row;
  uint32_t row_stride;  // of the weight, in numbers: a multiple of 4
  uint32_t splits;
  uint32_t share;  // of route_experts_few: warps that share an expert
  float* parts;    // [splits][rows of the bucket][score_stride]
  uint32_t num_rows, score_stride;
  uint32_t* counters;
  int32_t* ids;
  float* weights;
  const uint32_t* live;
};

struct RouteChoice : KernelChoice {
  uint32_t tile_rows = 16;
  uint32_t splits = 1;
  uint32_t share = 0;  // 0: tiles
};

// The largest of the warp's numbers.
__device__ inline uint32_t warp_max_bits(uint32_t value) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(kFullMask, value);
#else
  return warp_reduce(value, MaxOf());
#endif
}

__device__ inline uint32_t key_of(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);  // -0 is 0
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ inline float number_of(uint32_t key) {
  return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

// ---- scores --------------------------------------------------------------------------------------------------------

// Four numbers of a row from `column` on; zeros behind its end.
__device__ inline float4 load_four(const float* row, uint32_t column, uint32_t columns, bool is_aligned) {
  if (column + 4 <= columns && is_aligned) return *reinterpret_cast<const float4*>(row + column);
  const auto at = [&](uint32_t i) { return column + i < columns ? row[column + i] : 0.0f; };
  return {at(0), at(1), at(2), at(3)};
}

// What a thread brings to shared memory of kRows rows of 32 columns: fours number threadIdx.x and every 256 further.
template <uint32_t kRows>
struct RouteTile {
  static constexpr uint32_t kFours = (kRows * kRouteColumns / 4 + kRouteThreads - 1) / kRouteThreads;
  float4 fours[kFours];

  // `row_of(r)`: where row r begins, or null.
  __device__ void load(uint32_t column, uint32_t columns, bool is_aligned, auto row_of) {
#pragma unroll
    for (uint32_t i = 0; i < kFours; ++i) {
      const uint32_t four = threadIdx.x + i * kRouteThreads, r = four / (kRouteColumns / 4);
      const float* row = r < kRows ? row_of(r) : nullptr;
      fours[i] = row ? load_four(row, column + four % (kRouteColumns / 4) * 4, columns, is_aligned) : float4{};
    }
  }
  // [column][row]
  __device__ void store(float* shared, uint32_t stride) const {
#pragma unroll
    for (uint32_t i = 0; i < kFours; ++i) {
      const uint32_t four = threadIdx.x + i * kRouteThreads, r = four / (kRouteColumns / 4);
      if (r >= kRows) continue;
      float* to = shared + four % (kRouteColumns / 4) * 4 * stride + r;
      to[0] = fours[i].x, to[stride] = fours[i].y, to[2 * stride] = fours[i].z, to[3 * stride] = fours[i].w;
    }
  }
};

template <uint32_t kRows>
__device__ void make_scores(const RouteArgs& args, uint32_t live, uint32_t row_first, uint8_t* shared) {
  constexpr uint32_t kMine = kRows / 16, kXStride = kRows + 4;
  float* w_tile = reinterpret_cast<float*>(shared);
  float* x_tile = w_tile + kRouteColumns * kRouteStride;
  const uint32_t expert_first = blockIdx.x * kRouteExperts;
  const uint32_t num_chunks = (args.columns + kRouteColumns - 1) / kRouteColumns;
  const uint32_t begin = num_chunks * blockIdx.y / args.splits, end = num_chunks * (blockIdx.y + 1) / args.splits;
  RouteTile<kRouteExperts> w, w_next;
  RouteTile<kRows> x, x_next;
  const bool x_aligned = args.columns % 4 == 0;
  const auto load_w = [&](RouteTile<kRouteExperts>* tile, uint32_t chunk) {
    if (chunk >= end) return;
    tile->load(chunk * kRouteColumns, args.columns, true, [&](uint32_t r) -> const float* {
      const uint32_t e = expert_first + r;
      if (e < args.num_experts) return args.weight + uint64_t{e} * args.row_stride;
      return e == args.num_experts ? args.shared_gate : nullptr;
    });
  };
  const auto load_x = [&](RouteTile<kRows>* tile, uint32_t chunk) {
    if (chunk >= end) return;
    tile->load(chunk * kRouteColumns, args.columns, x_aligned, [&](uint32_t r) -> const float* {
      return row_first + r < live ? args.x + uint64_t{row_first + r} * args.columns : nullptr;
    });
  };
  // Two chunks are under way at a time.
  load_w(&w, begin);
  load_w(&w_next, begin + 1);
  grid_dependency_wait();  // weights never change
  if (row_first >= live) return;
  load_x(&x, begin);
  load_x(&x_next, begin + 1);
  float sums[kMine][4] = {};
  const uint32_t mine = threadIdx.x % 16 * 4, row = threadIdx.x / 16 * kMine;
  for (uint32_t chunk = begin; chunk < end; ++chunk) {
    w.store(w_tile, kRouteStride);
    x.store(x_tile, kXStride);
    __syncthreads();
#pragma unroll 8
    for (uint32_t c = 0; c < kRouteColumns; ++c) {
      const float4 four = *reinterpret_cast<const float4*>(w_tile + c * kRouteStride + mine);
      const float each[4] = {four.x, four.y, four.z, four.w};
      const auto numbers = *reinterpret_cast<const Vec<float, kMine>*>(x_tile + c * kXStride + row);
#pragma unroll
      for (uint32_t r = 0; r < kMine; ++r)
#pragma unroll
        for (uint32_t e = 0; e < 4; ++e) sums[r][e] += numbers.v[r] * each[e];
    }
    w = w_next;
    x = x_next;
    load_w(&w_next, chunk + 2);
    load_x(&x_next, chunk + 2);
    __syncthreads();
  }
#pragma unroll
  for (uint32_t r = 0; r < kMine; ++r) {
    if (row_first + row + r >= live) break;
    float* to = args.parts + (uint64_t{blockIdx.y} * args.num_rows + row_first + row + r) * args.score_stride +
                expert_first + mine;
    *reinterpret_cast<float4*>(to) = {sums[r][0], sums[r][1], sums[r][2], sums[r][3]};
  }
}

// ---- the choice, by a warp -----------------------------------------------------------------------------------------

struct RowChoice {
  const RouteArgs& args;
  uint32_t row;
  float* scores;    // [score_stride], shared
  uint32_t* keys;   // the same
  float most, sum;  // of kSoftmax: the largest score, and the sum of exp(score - most)

  __device__ float probability(float score) const {
    switch (args.rule.scoring) {
      case ExpertScoring::kSoftmax:
        return expf(score - most) / sum;
      case ExpertScoring::kSigmoid:
        return sigmoid(score);
      case ExpertScoring::kSqrtSoftplus:
        return sqrtf(softplus(score));
      case ExpertScoring::kSoftmaxOfChosen:
        break;
    }
    return score;
  }

  // Adds the parts, and fills `scores` and `keys`; false: a score is not a number.
  __device__ bool read_scores() {
    const uint32_t lane = threadIdx.x % kWarp, num_experts = args.num_experts;
    const uint64_t part_fours = uint64_t{args.num_rows} * args.score_stride / 4;
    const float4* parts = reinterpret_cast<const float4*>(args.parts + uint64_t{row} * args.score_stride);
    for (uint32_t q = lane; q < args.score_stride / 4; q += kWarp) {
      float4 total = {};
#pragma unroll 8
      for (uint32_t s = 0; s < args.splits; ++s) add_four(total, __ldcg(parts + s * part_fours + q));
      reinterpret_cast<float4*>(scores)[q] = total;
    }
    __syncwarp();
    bool is_number = true;
    most = -INFINITY;
    for (uint32_t e = lane; e < num_experts; e += kWarp) {
      const float score = scores[e] + (args.bias ? args.bias[e] : 0.0f);
      is_number &= score == score;
      most = score > most ? score : most;
      scores[e] = score;
      keys[e] = key_of(score);
    }
    if (__any_sync(kFullMask, !is_number)) return false;
    most = warp_max(most);
    if (args.rule.scoring == ExpertScoring::kSoftmax) {
      float mine = 0;
      for (uint32_t e = lane; e < num_experts; e += kWarp) mine += expf(scores[e] - most);
      sum = warp_sum(mine);
    }
    if (args.correction)
      for (uint32_t e = lane; e < num_experts; e += kWarp)
        keys[e] = key_of(probability(scores[e]) + args.correction[e]);
    __syncwarp();
    return true;
  }

  // Experts of groups that are not among the best get the least of keys. A lane has a group.
  __device__ void leave_groups() {
    const uint32_t lane = threadIdx.x % kWarp, size = args.num_experts / args.rule.groups;
    float best = -INFINITY, second = -INFINITY;
    if (lane < args.rule.groups) {
      for (uint32_t i = 0; i < size; ++i) {
        const float number = number_of(keys[lane * size + i]);
        const float value = args.correction ? number : probability(number);
        second = value > best ? best : value > second ? value : second;
        best = value > best ? value : best;
      }
    }
    const float total = best + (size > 1 ? second : 0.0f);
    uint32_t num_better = 0;
    for (uint32_t other = 0; other < args.rule.groups; ++other) {
      const float theirs = __shfl_sync(kFullMask, total, other);
      num_better += theirs > total || (theirs == total && other < lane);
    }
    const uint32_t left = __ballot_sync(kFullMask, lane < args.rule.groups && num_better < args.rule.groups_used);
    for (uint32_t e = lane; e < args.num_experts; e += kWarp)
      if (!(left >> e / size & 1)) keys[e] = key_of(-INFINITY);
    __syncwarp();
  }

  // The best of this lane's experts, the lowest of equal ones; a key of 0: none is left.
  struct Best {
    uint32_t key = 0, id = 0;
  };
  __device__ Best best_of_lane() const {
    Best best;
    for (uint32_t e = threadIdx.x % kWarp; e < args.num_experts; e += kWarp)
      if (keys[e] > best.key) best = {keys[e], e};
    return best;
  }

  // Lane j gets the j-th of `used`.
  __device__ uint32_t choose_best(uint32_t used) {
    const uint32_t lane = threadIdx.x % kWarp;
    uint32_t mine = 0;
    Best best = best_of_lane();
    for (uint32_t j = 0; j < used; ++j) {
      const uint32_t key = warp_max_bits(best.key);
      const uint32_t id = ~warp_max_bits(best.key == key ? ~best.id : 0);
      if (lane == j) mine = id;
      if (id % kWarp != lane) continue;
      keys[id] = 0;
      best = best_of_lane();
    }
    __syncwarp();
    return mine;
  }
};

__device__ inline void choose_row(const RouteArgs& args, uint32_t row, float* scores) {
  const uint32_t lane = threadIdx.x % kWarp, used = args.per_row - args.rule.num_shared;
  RowChoice choice{args, row, scores, reinterpret_cast<uint32_t*>(scores + args.score_stride), 0, 1};
  const bool is_number = choice.read_scores();
  uint32_t id = lane;
  float weight = __uint_as_float(0x7fc00000u);
  if (is_number) {
    if (args.rule.groups > 1) choice.leave_groups();
    id = choice.choose_best(used);
    const bool is_mine = lane < used;
    const float score = is_mine ? scores[id] : -INFINITY;
    if (args.rule.scoring == ExpertScoring::kSoftmaxOfChosen) {
      choice.most = warp_max(score);
      weight = is_mine ? expf(score - choice.most) : 0.0f;
      weight /= warp_sum(weight);
    } else {
      weight = is_mine ? choice.probability(score) : 0.0f;
    }
    const float total = warp_sum(weight);
    const float least = 1.0f / 16384;
    weight *= args.rule.scale / (args.rule.renormalise ? (total > least ? total : least) : 1.0f);
  }
  if (lane >= used && lane < args.per_row) {
    id = args.num_experts + lane - used;
    if (is_number) {
      weight = 1;
      if (args.shared_gate) weight = sigmoid(scores[args.num_experts]);
    }
  }
  if (lane >= args.per_row) return;
  args.ids[uint64_t{row} * args.per_row + lane] = static_cast<int32_t>(id);
  args.weights[uint64_t{row} * args.per_row + lane] = weight;
}

// As many as have room for scores and keys in 32 KB.
__host__ __device__ inline uint32_t choosing_warps(uint32_t score_stride) {
  const uint32_t room = (32u << 10) / (score_stride * 8);
  return room < kRouteWarps ? room : kRouteWarps;
}

template <uint32_t kRows>
__global__ void __launch_bounds__(kRouteThreads, 2) route_experts_kernel(const RouteArgs args) {
  __shared__ uint32_t is_last;
  uint8_t* shared = dynamic_shared();
  const uint32_t live = *args.live, row_first = blockIdx.z * kRows;
  make_scores<kRows>(args, live, row_first, shared);
  if (row_first >= live) return;
  if (!arrives_last(args.counters + blockIdx.z, gridDim.x * gridDim.y, 1, kRouteThreads, threadIdx.x == 0, &is_last))
    return;
  const uint32_t warp = threadIdx.x / kWarp, num_warps = choosing_warps(args.score_stride);
  float* scores = reinterpret_cast<float*>(shared) + warp * 2 * args.score_stride;
  const uint32_t end = min(kRows, live - row_first);
  for (uint32_t r = warp; warp < num_warps && r < end; r += num_warps) {
    choose_row(args, row_first + r, scores);
    __syncwarp();
  }
}

constexpr uint32_t kFewRows = 4, kFewAhead = 8;  // fours of weights that a lane has under way
constexpr uint32_t kFewSharedBytes = 32u << 10;  // scores and keys of the rows

template <uint32_t kRows>
__global__ void __launch_bounds__(kRouteThreads) route_experts_few_kernel(const RouteArgs args) {
  __shared__ uint32_t is_last;
  __shared__ float sums_of_warp[kRouteWarps][kRows];
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, live = min(*args.live, kRows);
  const uint32_t each = kRouteWarps / args.share, expert = blockIdx.x * each + warp / args.share;
  const uint32_t first = (warp % args.share * kWarp + lane) * 4, step = args.share * kWarp * 4;
  const float* weight = expert < args.num_experts    ? args.weight + uint64_t{expert} * args.row_stride
                        : expert == args.num_experts ? args.shared_gate
                                                     : nullptr;
  const auto load_weight = [&](uint32_t column) {
    return weight && column < args.columns ? load_four(weight, column, args.columns, true) : float4{};
  };
  float4 ahead[kFewAhead];
#pragma unroll
  for (uint32_t i = 0; i < kFewAhead; ++i) ahead[i] = load_weight(first + i * step);
  grid_dependency_wait();  // weights never change
  if (live == 0) return;
  const bool x_aligned = args.columns % 4 == 0;
  float sums[kRows] = {};
  const auto add = [&](const float4& w, uint32_t column) {
    if (column >= args.columns) return;
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r) {
      if (r >= live) break;
      const float4 x = load_four(args.x + uint64_t{r} * args.columns, column, args.columns, x_aligned);
      sums[r] += w.x * x.x + w.y * x.y + (w.z * x.z + w.w * x.w);
    }
  };
#pragma unroll
  for (uint32_t i = 0; i < kFewAhead; ++i) add(ahead[i], first + i * step);
  for (uint32_t column = first + kFewAhead * step; column < args.columns; column += step)
    add(load_weight(column), column);
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) {
    const float sum = warp_sum(sums[r]);
    if (lane == 0) sums_of_warp[warp][r] = sum;
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < each * live; i += kRouteThreads) {
    const uint32_t e = i / live, r = i % live;
    float sum = 0;
    for (uint32_t w = 0; w < args.share; ++w) sum += sums_of_warp[e * args.share + w][r];
    args.parts[uint64_t{r} * args.score_stride + blockIdx.x * each + e] = sum;
  }
  if (!arrives_last(args.counters, gridDim.x, 1, kRouteThreads, threadIdx.x == 0, &is_last)) return;
  float* scores = reinterpret_cast<float*>(dynamic_shared()) + warp * 2 * args.score_stride;
  if (warp < live) choose_row(args, warp, scores);
}

uint32_t score_columns(const RouteExperts& op, uint32_t num_experts) {
  return round_up(num_experts + (op.shared_gate >= 0 ? 1u : 0u), kRouteExperts);
}

Status start(const RouteExperts& op, const RouteChoice& choice, const OpContext& at) {
  const PackedMatrix& weight = at.weights->tensor(op.weight);
  const auto vector = [&](WeightId id) { return id < 0 ? nullptr : at.weight_vector(id); };
  const RouteArgs args{at.tensor<float>(op.x),
                       reinterpret_cast<const float*>(weight.plane[0]),
                       vector(op.bias),
                       vector(op.correction),
                       vector(op.shared_gate),
                       op.rule,
                       weight.rows,
                       weight.columns,
                       at.list->routed_per_row,
                       weight.row_stride / 4,
                       choice.splits,
                       choice.share,
                       reinterpret_cast<float*>(at.workspace.data),
                       at.rows_of(op.x),
                       score_columns(op, weight.rows),
                       at.workspace.counters,
                       at.tensor<int32_t>(op.ids),
                       at.tensor<float>(op.weights),
                       at.live(op.x)};
  if (choice.share > 0)
    return launch(at, choice, args.num_rows == 1 ? route_experts_few_kernel<1> : route_experts_few_kernel<kFewRows>,
                  args);
  return launch(at, choice, choice.tile_rows == 16 ? route_experts_kernel<16> : route_experts_kernel<64>, args);
}

// Warps that share an expert: as many as still leave each multiprocessor no more than one block.
uint32_t few_share(uint32_t num_scores, uint32_t num_sms) {
  uint32_t share = kRouteWarps;
  while (share > 1 && ceil_div(num_scores, kRouteWarps / share) > num_sms) share /= 2;
  return share;
}

void lay_out_few(const RouteExperts& op, uint32_t rows, uint32_t score_stride, const CompileInputs& inputs,
                 RouteChoice* choice) {
  const uint32_t num_scores = inputs.tensors[static_cast<size_t>(op.weight)].rows + (op.shared_gate >= 0 ? 1 : 0);
  choice->kernel = "route_experts_few";
  choice->share = few_share(num_scores, inputs.device.num_sms);
  choice->grid = {ceil_div(num_scores, kRouteWarps / choice->share), 1, 1};
  choice->shared_bytes = rows * score_stride * 8;
  choice->variant = fmt::format("warps={}", choice->share);
}

// Parts of two chunks where that does not make more blocks than start at once. In batch-invariant lists one number of
// parts for all: the order of a score's sums.
void lay_out_tiles(const PackedMatrix& weight, uint32_t rows, uint32_t score_stride, bool batch_invariant,
                   const CompileInputs& inputs, RouteChoice* choice) {
  const Tuning& tuning = inputs.tuning;
  choice->kernel = "route_experts";
  choice->tile_rows = rows <= tuning.route_few_rows_max ? 16 : 64;
  const uint32_t tiles = score_stride / kRouteExperts, row_tiles = ceil_div(rows, choice->tile_rows);
  const uint32_t chunks = ceil_div(weight.columns, kRouteColumns);
  const uint32_t wanted = inputs.device.num_sms * tuning.route_blocks_sm / tiles;
  const uint32_t wide = batch_invariant ? tuning.route_invariant_splits : std::max(wanted / row_tiles, 1u);
  choice->splits = std::max(1u, std::min(wide, chunks / 2));
  choice->grid = {tiles, choice->splits, row_tiles};
  const uint32_t tile_bytes = kRouteColumns * (kRouteStride + choice->tile_rows + 4) * 4;
  choice->shared_bytes = std::max(tile_bytes, choosing_warps(score_stride) * score_stride * 8);
  choice->variant = fmt::format("rows={} splits={}", choice->tile_rows, choice->splits);
}

}  // namespace

Status choose(const RouteExperts& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  const PackedMatrix& weight = inputs.tensors[static_cast<size_t>(op.weight)];
  const uint32_t rows = list.rows_of(op.x);
  if (op.rule.groups > kGroupsMax)
    return make_error(ErrorCode::kUnsupported, "route_experts: expected at most {} groups, found {}", kGroupsMax,
                      op.rule.groups);
  if (weight.encoding != Encoding::kF32)
    return make_error(ErrorCode::kUnsupported, "route_experts: expected a weight in f32, found {}",
                      encoding_name(weight.encoding));
  const uint32_t score_stride = score_columns(op, weight.rows);
  const bool is_few = rows <= kFewRows && !list.batch_invariant && kFewRows * score_stride * 8 <= kFewSharedBytes;
  RouteChoice choice;
  choice.threads = kRouteThreads;
  if (is_few)
    lay_out_few(op, rows, score_stride, inputs, &choice);
  else
    lay_out_tiles(weight, rows, score_stride, list.batch_invariant, inputs, &choice);
  choice.workspace_bytes = uint64_t{rows} * score_stride * 4 * choice.splits;
  if (choice.workspace_bytes > inputs.workspace_bytes || choice.grid.z > inputs.num_counters)
    return make_error(ErrorCode::kOutOfMemory, "route_experts: {} bytes of scores pass the workspace of {}",
                      choice.workspace_bytes, inputs.workspace_bytes);
  add_launch(out, choice, [op](const RouteChoice& c, const OpContext& at) { return start(op, c, at); });
  return {};
}

}  // namespace llmrt::cuda
