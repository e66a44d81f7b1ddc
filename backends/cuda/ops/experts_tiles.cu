// Products of experts for many rows, on compute capability 9.0, by the products of warpgroups: gate, other half and
// activation to f16, or down, each product with its weight to f32 partial products of the routed rows. x f16, sorted by
// expert (experts_order.cu), weights f16 or quantised.
//
// A tile is up to kRows rows of one expert by 128 rows of W: 128 outputs, or the gates and other halves of 64. So where
// an expert has at most kRows rows its weights are read and decoded once. Blocks are persistent and take tiles in turn;
// which they are they find from the offsets of the experts' rows, so that no grid depends on the routing.
//
// In a block two warpgroups load packed weights, two steps of 128 columns ahead, decode them to f16 and store them in a
// ring in shared memory, each half of the rows of W, through to the next tile; x comes into the same ring by the copy
// engine, as many boxes of 64 rows as the tile has. Two others multiply, both factors from there, the boxes of 64 rows
// in turn, and have gate and other half of an output in one lane. Rows of a box beyond the tile's are those of other
// experts, whose sums are not stored.
#include <algorithm>

#include "backends/cuda/activation.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/experts_rows.cuh"
#include "backends/cuda/ops/matmul.h"
#include "backends/cuda/warpgroup.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kTilesGroupThreads = 128, kTilesGroupWarps = kTilesGroupThreads / kWarp;
constexpr uint32_t kTilesProducers = 2, kTilesConsumers = 2;
constexpr uint32_t kTilesProducerWarps = kTilesProducers * kTilesGroupWarps;
constexpr uint32_t kTilesThreads = (kTilesProducers + kTilesConsumers) * kTilesGroupThreads;
constexpr uint32_t kTilesOuts = 128, kBoxRows = 64;  // rows of W, of x in a box
constexpr uint32_t kTilesRingBytesMax = 200 << 10;

// A stage is 64 columns of x and of the weights, rows of 128 bytes.
template <uint32_t kRows_>
struct TilesShape {
  static constexpr uint32_t kRows = kRows_, kBoxes = kRows / kBoxRows, kMine = kBoxes / kTilesConsumers;
  static constexpr uint32_t kRowBytes = 128, kTileBoxBytes = kBoxRows * kRowBytes;
  static constexpr uint32_t kXBytes = kRows * kRowBytes, kStageBytes = kXBytes + kTilesOuts * kRowBytes;
  static constexpr uint32_t kStages = kTilesRingBytesMax / kStageBytes / 2 * 2;
  static constexpr uint32_t kAtOnce = kStages < 6 ? 1 : 2;  // filled together; they must not be half of the ring
  // Stages stand at multiples of 1024 bytes, which dynamic shared memory need not.
  static constexpr uint32_t kRingBytes = 1024 + kStages * kStageBytes + kStages * 2 * 8;
  // A thread starts with 128; producers give some to consumers.
  static constexpr int kConsumerRegisters = kMine == 1 ? 128 : 160;
  static constexpr int kProducerRegisters = 256 - kConsumerRegisters;
};

template <class S>
struct TilesRing {
  uint8_t* stages;
  uint64_t *full, *free;  // [kStages]

  __device__ uint8_t* x(uint32_t s) const { return stages + s * S::kStageBytes; }
  __device__ uint8_t* weights(uint32_t s) const { return x(s) + S::kXBytes; }
};

// Where the experts' rows begin among the sorted ones, and their tiles among all tiles of rows. In shared memory.
struct ExpertTables {
  uint32_t *rows, *tiles;  // [num_experts + 1]
};

// A tile of this block: its expert, rows of the sorted ones, and outputs.
struct ExpertTile {
  uint32_t expert = 0, row_first = 0, num_rows = 0, out_first = 0;

  // Tiles are asked for in their order. Tiles with the same rows come one after the other.
  __device__ void find(const ExpertTables& tables, uint32_t tile, uint32_t num_out_tiles, uint32_t tile_rows,
                       uint32_t tile_outs) {
    const uint32_t row_tile = tile / num_out_tiles;
    while (tables.tiles[expert + 1] <= row_tile) ++expert;
    const uint32_t first = (row_tile - tables.tiles[expert]) * tile_rows;
    row_first = tables.rows[expert] + first;
    num_rows = min(tables.rows[expert + 1] - row_first, tile_rows);
    out_first = tile % num_out_tiles * tile_outs;
  }
};

// By a warp.
__device__ inline void fill_tables(const ExpertTables& tables, const ExpertArgs& args, uint32_t tile_rows) {
  const uint32_t lane = threadIdx.x % kWarp;
  uint32_t before = 0;
  for (uint32_t first = 0; first < args.num_experts; first += kWarp) {
    const uint32_t e = first + lane;
    const bool has = e < args.num_experts;
    const uint32_t begin = has ? args.offsets[e] : 0, end = has ? args.offsets[e + 1] : 0;
    const uint32_t mine = (end - begin + tile_rows - 1) / tile_rows;
    uint32_t sum = mine;
    for (uint32_t delta = 1; delta < kWarp; delta *= 2) {
      const uint32_t other = __shfl_up_sync(kFullMask, sum, delta);
      if (lane >= delta) sum += other;
    }
    if (has) {
      tables.rows[e] = begin;
      tables.tiles[e] = before + sum - mine;
      if (e + 1 == args.num_experts) {
        tables.rows[e + 1] = end;
        tables.tiles[e + 1] = before + sum;
      }
    }
    before += __shfl_sync(kFullMask, sum, kWarp - 1);
  }
}

// ---- producers -----------------------------------------------------------------------------------------------------

// Where a block is: step `step` of its tile number `number`.
struct TilesPlace {
  uint32_t number = 0, step = 0;
  ExpertTile tile;
};

// The box of x of stages s .. s + kAtOnce - 1, `column` the first of them. By one thread.
template <class S>
__device__ void copy_x(const TilesRing<S>& ring, const RowMap& map, const ExpertTile& tile, uint32_t s,
                       uint32_t column) {
  const uint32_t boxes = (tile.num_rows + kBoxRows - 1) / kBoxRows;
#pragma unroll
  for (uint32_t i = 0; i < S::kAtOnce; ++i) {
    barrier_arrive_for_bytes(&ring.full[s + i], boxes * S::kTileBoxBytes);
    for (uint32_t b = 0; b < boxes; ++b)
      copy_rows<1>(ring.x(s + i) + b * S::kTileBoxBytes, map, column + i * 64, tile.row_first + b * kBoxRows,
                   &ring.full[s + i]);
  }
}

template <class S, Encoding E, bool kGated>
__device__ void fill_tiles(const TilesRing<S>& ring, const ExpertArgs& args, const RowMap& map,
                           const ExpertTables& tables, uint32_t num_tiles, uint32_t num_out_tiles) {
  constexpr uint32_t kWarpRows = 8, kGroupRows = kTilesGroupWarps * kWarpRows;
  constexpr uint32_t kFragments = kTilesOuts / kTilesProducers / kGroupRows;  // of a thread, of a step
  constexpr uint32_t kAhead = E == Encoding::kF16 && S::kRows > 128 ? 1 : 2;  // steps: registers
  constexpr uint32_t kOuts = kGated ? kTilesOuts / 2 : kTilesOuts;
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, t = lane % 4;
  // Eight lanes, whose stores go together, have rows r and r + 4, which stand in different banks.
  const uint32_t row = warp / kTilesGroupWarps * (kTilesOuts / kTilesProducers) + warp % kTilesGroupWarps * kWarpRows +
                       lane / 4 % 2 * 4 + lane / 8;
  const uint32_t num_steps = (args.gate.columns + kStep - 1) / kStep;
  const uint32_t num_mine = num_tiles > blockIdx.x ? (num_tiles - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
  const uint32_t num_all = num_mine * num_steps;  // steps of all of the block's tiles
  Fragment<E> fragments[kAhead][kFragments];
  TilesPlace here;
  const auto find = [&](TilesPlace* place) {
    place->tile.find(tables, blockIdx.x + place->number * gridDim.x, num_out_tiles, S::kRows, kOuts);
  };
  const auto next = [&](TilesPlace* place) {
    if (++place->step < num_steps) return;
    place->step = 0;
    if (++place->number < num_mine) find(place);
  };
  if (num_all == 0) return;
  find(&here);
  TilesPlace ahead = here;
  const auto load = [&](Fragment<E>* fragment, uint32_t i) {
    const uint32_t r = i * kGroupRows + row;
    // Past the end the last output again, whose sums are not stored.
    const uint64_t w_row =
        uint64_t{ahead.tile.expert} * args.stride + min(ahead.tile.out_first + r % kOuts, args.outs - 1);
    fragment->load(kGated && r >= kOuts ? args.up : args.gate, w_row, ahead.step, t);
  };
#pragma unroll
  for (uint32_t d = 0; d < kAhead; ++d) {
    if (d >= num_all) continue;
#pragma unroll
    for (uint32_t i = 0; i < kFragments; ++i) load(&fragments[d][i], i);
    next(&ahead);
  }
  for (uint32_t first = 0; first < num_all; first += kAhead) {
#pragma unroll
    for (uint32_t d = 0; d < kAhead; ++d) {
      const uint32_t g = first + d;
      if (g >= num_all) continue;
      const bool has_next = g + kAhead < num_all;
#pragma unroll
      for (uint32_t half = 0; half < 2; half += S::kAtOnce) {
        const uint32_t n = 2 * g + half, s = n % S::kStages;
#pragma unroll
        for (uint32_t i = 0; i < S::kAtOnce; ++i) barrier_wait(&ring.free[s + i], ~(n / S::kStages) & 1);
        // In turn: it takes as long as decoding some chunks.
        if (lane == 0 && warp == n / S::kAtOnce % kTilesProducerWarps)
          copy_x(ring, map, here.tile, s, here.step * kStep + half * 64);
        __syncwarp();
        uint8_t* to = ring.weights(s) + row * S::kRowBytes;
#pragma unroll
        for (uint32_t i = 0; i < kFragments; ++i) {
          const SharedDecode<E> shared(fragments[d][i], t, here.step);
#pragma unroll
          for (uint32_t u = 0; u < 2 * S::kAtOnce; ++u) {
            uint32_t pairs[4];
            shared.decode(fragments[d][i], static_cast<int>(2 * half + u), t, here.step, pairs);
            const uint32_t place = (u % 2 * 4 + t) ^ row % 8;
            *reinterpret_cast<uint4*>(to + u / 2 * S::kStageBytes + i * kGroupRows * S::kRowBytes + place * 16) = {
                pairs[0], pairs[1], pairs[2], pairs[3]};
          }
          if (half + S::kAtOnce == 2 && has_next) load(&fragments[d][i], i);
        }
        shared_writes_visible();
        __syncwarp();
        if (lane < S::kAtOnce) barrier_arrive(&ring.full[s + lane]);
      }
      if (has_next) next(&ahead);
      next(&here);
    }
  }
}

// ---- consumers -----------------------------------------------------------------------------------------------------

// A thread's sums of its warpgroup's boxes: fours of columns n, n + 1 of a row and of the one 8 further on.
template <class S>
using TilesSums = float[S::kMine][kTilesOuts / 8][4];

// Stages [begin, end) of the block, for kActive boxes of this warpgroup.
template <class S, uint32_t kActive>
__device__ void multiply_boxes(TilesSums<S>& sums, const TilesRing<S>& ring, uint32_t group, uint32_t begin,
                               uint32_t end) {
  const uint32_t lane = threadIdx.x % kWarp;
  const auto release = [&](uint32_t n) {
    if (lane == 0) barrier_arrive(&ring.free[n % S::kStages]);
  };
  for (uint32_t n = begin; n < end; ++n) {
    const uint32_t s = n % S::kStages;
    barrier_wait(&ring.full[s], n / S::kStages & 1);
    if constexpr (kActive == 0) {
      __syncwarp();
      release(n);
    } else {
      const uint64_t x = product_operand(shared_address(ring.x(s)) + group * S::kTileBoxBytes, 0);
      const uint64_t weights = product_operand(shared_address(ring.weights(s)), 0);
      products_begin();
#pragma unroll
      for (uint32_t k = 0; k < 4; ++k)
#pragma unroll
        for (uint32_t i = 0; i < kActive; ++i)
          warpgroup_product(sums[i], x + (i * kTilesConsumers * S::kTileBoxBytes + k * 32) / 16, weights + k * 32 / 16);
      products_commit();
      products_wait_older<1>();  // the stage before may be written over
      if (n > begin) release(n - 1);
    }
  }
  if constexpr (kActive > 0) {
#pragma unroll
    for (uint32_t i = 0; i < kActive; ++i) products_wait<0>(sums[i]);
    if (end > begin) release(end - 1);
  }
}

// Two outputs of a row.
template <bool kGated>
__device__ inline void store_two(const ExpertArgs& args, const ExpertTile& tile, uint32_t k, uint32_t n, float first,
                                 float second, float first_up, float second_up) {
  const uint32_t out = tile.out_first + n;
  if (out >= args.outs) return;
  const bool is_pair = out + 1 < args.outs;
  const uint64_t w_row = uint64_t{tile.expert} * args.stride + out, to = uint64_t{k} * args.outs + out;
  if (args.gate_bias) {
    first += args.gate_bias[w_row];
    if (is_pair) second += args.gate_bias[w_row + 1];
  }
  if constexpr (kGated) {
    if (args.up_bias) {
      first_up += args.up_bias[w_row];
      if (is_pair) second_up += args.up_bias[w_row + 1];
    }
    const __half2 both =
        __floats2half2_rn(gated(args.activation, first, first_up), gated(args.activation, second, second_up));
    __half* at = static_cast<__half*>(args.out) + to;
    if (is_pair && args.outs % 2 == 0) {
      *reinterpret_cast<__half2*>(at) = both;
    } else {
      at[0] = __float2half_rn(__low2float(both));
      if (is_pair) at[1] = __float2half_rn(__high2float(both));
    }
  } else {
    const float weight = args.weights[k];
    float* at = static_cast<float*>(args.out) + to;
    if (is_pair && args.outs % 2 == 0) {
      *reinterpret_cast<float2*>(at) = {weight * first, weight * second};
    } else {
      at[0] = weight * first;
      if (is_pair) at[1] = weight * second;
    }
  }
}

template <class S, bool kGated>
__device__ void multiply_tiles(const TilesRing<S>& ring, const ExpertArgs& args, const ExpertTables& tables,
                               uint32_t num_tiles, uint32_t num_out_tiles) {
  constexpr uint32_t kOuts = kGated ? kTilesOuts / 2 : kTilesOuts, kStored = kOuts / 8;
  const uint32_t group = threadIdx.x / kTilesGroupThreads - kTilesProducers, thread = threadIdx.x % kTilesGroupThreads;
  const uint32_t row = thread / kWarp * 16 + thread % kWarp / 4, column = thread % 4 * 2;
  const uint32_t num_stages = (args.gate.columns + kStep - 1) / kStep * 2;
  ExpertTile tile;
  uint32_t n = 0;
  for (uint32_t number = blockIdx.x; number < num_tiles; number += gridDim.x, n += num_stages) {
    tile.find(tables, number, num_out_tiles, S::kRows, kOuts);
    uint32_t routed[S::kMine][2];  // UINT32_MAX: there is none
#pragma unroll
    for (uint32_t i = 0; i < S::kMine; ++i)
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h) {
        const uint32_t r = (i * kTilesConsumers + group) * kBoxRows + row + h * 8;
        routed[i][h] = r < tile.num_rows ? args.order[tile.row_first + r] : UINT32_MAX;
      }
    const uint32_t boxes = (tile.num_rows + kBoxRows - 1) / kBoxRows;
    const uint32_t active = (boxes + kTilesConsumers - 1 - group) / kTilesConsumers;
    TilesSums<S> sums = {};
    if (active == 0)
      multiply_boxes<S, 0>(sums, ring, group, n, n + num_stages);
    else if (S::kMine == 1 || active == 1)
      multiply_boxes<S, 1>(sums, ring, group, n, n + num_stages);
    else
      multiply_boxes<S, S::kMine>(sums, ring, group, n, n + num_stages);
#pragma unroll
    for (uint32_t i = 0; i < S::kMine; ++i) {
      if (i >= active) break;
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h) {
        if (routed[i][h] == UINT32_MAX) continue;
#pragma unroll
        for (uint32_t f = 0; f < kStored; ++f) {
          const float(&four)[4] = sums[i][f];
          const float(&other)[4] = sums[i][kGated ? f + kStored : f];
          store_two<kGated>(args, tile, routed[i][h], f * 8 + column, four[2 * h], four[2 * h + 1], other[2 * h],
                            other[2 * h + 1]);
        }
      }
    }
  }
}

// ---- the kernel ----------------------------------------------------------------------------------------------------

template <Encoding E, class S, bool kGated>
__global__ void __launch_bounds__(kTilesThreads, 1)
    experts_tiles_kernel(const ExpertArgs args, const __grid_constant__ RowMap map) {
#if defined(LLMRT_SM_90A)
  constexpr uint32_t kOuts = kGated ? kTilesOuts / 2 : kTilesOuts;
  uint8_t* base = dynamic_shared_at_1024();
  uint64_t* barriers = reinterpret_cast<uint64_t*>(base + S::kStages * S::kStageBytes);
  uint32_t* words = reinterpret_cast<uint32_t*>(barriers + 2 * S::kStages);
  const TilesRing<S> ring{base, barriers, barriers + S::kStages};
  const ExpertTables tables{words, words + args.num_experts + 1};
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < S::kStages; ++i) {
      barrier_init(&ring.full[i], 1 + kTilesProducerWarps);
      barrier_init(&ring.free[i], kTilesConsumers * kTilesGroupWarps);
    }
    barriers_visible();
    prefetch_map(map);
  }
  grid_dependency_wait();
  if (threadIdx.x < kWarp) fill_tables(tables, args, S::kRows);
  __syncthreads();
  const uint32_t num_out_tiles = (args.outs + kOuts - 1) / kOuts;
  const uint32_t num_tiles = tables.tiles[args.num_experts] * num_out_tiles;
  if (threadIdx.x < kTilesProducers * kTilesGroupThreads) {
    if constexpr (S::kProducerRegisters < 128) fewer_registers<S::kProducerRegisters>();
    fill_tiles<S, E, kGated>(ring, args, map, tables, num_tiles, num_out_tiles);
  } else {
    if constexpr (S::kConsumerRegisters > 128) more_registers<S::kConsumerRegisters>();
    multiply_tiles<S, kGated>(ring, args, tables, num_tiles, num_out_tiles);
  }
#else
  __trap();  // OpContext::has_warpgroups says that this is not the code that runs
#endif
}

template <class S>
uint32_t tiles_shared_bytes(uint32_t num_experts) {
  return S::kRingBytes + 2 * (num_experts + 1) * 4;
}

template <Encoding E, class S>
Status start(const ExpertChoice& choice, const ExpertArgs& args, const __half* x, const OpContext& at) {
  const Result<RowMap> map = make_row_map(x, uint64_t{args.row_count} * args.per_row, args.gate.columns, kBoxRows);
  if (!map) return map.error();
  return launch(at, choice, choice.is_gated ? experts_tiles_kernel<E, S, true> : experts_tiles_kernel<E, S, false>,
                args, *map);
}

}  // namespace

void lay_out_experts_tiles(const ExpertShape& shape, const CompileInputs& inputs, ExpertChoice* choice) {
  const uint32_t outs = shape.is_gated ? kTilesOuts / 2 : kTilesOuts;
  const uint32_t out_count = choice->out_count > 0 ? choice->out_count : shape.outs;
  const uint32_t routed = shape.num_rows * shape.per_row;
  const uint32_t row_tiles = std::min(routed, shape.num_experts + routed / choice->tile_rows);
  choice->grid = {std::min(inputs.device.num_sms, row_tiles * ceil_div(out_count, outs))};
  choice->threads = kTilesThreads;
  choice->shared_bytes = choice->tile_rows == 128 ? tiles_shared_bytes<TilesShape<128>>(shape.num_experts)
                                                  : tiles_shared_bytes<TilesShape<256>>(shape.num_experts);
  choice->stages = choice->tile_rows == 128 ? TilesShape<128>::kStages : TilesShape<256>::kStages;
}

Status experts_tiles(const ExpertChoice& choice, const ExpertArgs& args, const void* x, const OpContext& at) {
  return with_encoding(args.gate.encoding, [&]<Encoding E>() {
    const __half* sorted = static_cast<const __half*>(x);
    return choice.tile_rows == 128 ? start<E, TilesShape<128>>(choice, args, sorted, at)
                                   : start<E, TilesShape<256>>(choice, args, sorted, at);
  });
}

}  // namespace llmrt::cuda
