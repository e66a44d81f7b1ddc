// Products of experts for many rows, on compute capability 9.0, by the products of warpgroups: gate, other half and
// activation to f16, or down, each product with its weight to f32 partial products of the routed rows. x f16, sorted by
// expert (experts_order.cu), weights f16 or quantised.
//
// A tile is up to kRows rows of one expert by 128 rows of W: 128 outputs, or the gates and other halves of 64. So where
// an expert has at most kRows rows its weights are read and decoded once. Blocks are persistent and take tiles in turn;
// which they are they find from the offsets of the experts' rows, so that no grid depends on the routing.
//
// In a block some warpgroups load packed weights, steps of 128 columns ahead, decode them to f16 and store them in a
// ring in shared memory, each warp some of the rows of W, through to the next tile; x comes into the same ring by the
// copy engine, as many boxes of 64 rows as the tile has. The others multiply, both factors from there, the boxes of 64
// rows in turn, and have gate and other half of an output in one lane. Rows of a box beyond the tile's are those of
// other experts, whose sums are not stored.
//
// At few rows a tile decoding bounds it: then one warpgroup multiplies and four decode.
#include <algorithm>

#include "backends/cuda/activation.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/experts_rows.cuh"
#include "backends/cuda/ops/matmul.h"
#include "backends/cuda/warpgroup.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kTilesGroupThreads = 128, kTilesGroupWarps = kTilesGroupThreads / kWarp;
constexpr uint32_t kTilesOuts = 128, kBoxRows = 64;  // rows of W, of x in a box
constexpr uint32_t kTilesRingBytesMax = 200 << 10;
constexpr uint32_t kSmRegisters = 64 << 10;

// A stage is 64 columns of x and of the weights, rows of 128 bytes.
template <uint32_t kRows_, uint32_t kProducers_, uint32_t kConsumers_, int kConsumerRegisters_>
struct TilesShape {
  static constexpr uint32_t kRows = kRows_, kBoxes = kRows / kBoxRows;
  static constexpr uint32_t kProducers = kProducers_, kConsumers = kConsumers_, kMine = kBoxes / kConsumers;
  static constexpr uint32_t kProducerWarps = kProducers * kTilesGroupWarps;
  static constexpr uint32_t kThreads = (kProducers + kConsumers) * kTilesGroupThreads;
  static constexpr uint32_t kRowBytes = 128, kTileBoxBytes = kBoxRows * kRowBytes;
  static constexpr uint32_t kXBytes = kRows * kRowBytes, kStageBytes = kXBytes + kTilesOuts * kRowBytes;
  static constexpr uint32_t kStages = kTilesRingBytesMax / kStageBytes / 2 * 2;
  static constexpr uint32_t kAtOnce = kStages < 6 ? 1 : 2;  // filled together; they must not be half of the ring
  // Stages stand at multiples of 1024 bytes, which dynamic shared memory need not.
  static constexpr uint32_t kRingBytes = 1024 + kStages * kStageBytes + kStages * 2 * 8;
  // What a thread starts with; producers give some to consumers.
  static constexpr int kRegisters = kSmRegisters / kThreads / 8 * 8, kConsumerRegisters = kConsumerRegisters_;
  static constexpr int kProducerRegisters = (kRegisters * static_cast<int>(kThreads) -
                                             kConsumerRegisters * static_cast<int>(kConsumers * kTilesGroupThreads)) /
                                            static_cast<int>(kProducers * kTilesGroupThreads) / 8 * 8;
};
using NarrowTiles = TilesShape<64, 4, 1, 128>;
using MiddleTiles = TilesShape<128, 2, 2, 128>;
using WideTiles = TilesShape<256, 2, 2, 160>;

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

// A tile: its expert, rows of the sorted ones, and outputs; its place among those of rows and of outputs.
struct ExpertTile {
  uint32_t expert = 0, row_first = 0, num_rows = 0, out_first = 0;
  uint32_t row_tile, out_tile;

  __device__ void find_rows(const ExpertTables& tables, uint32_t tile_rows) {
    while (tables.tiles[expert + 1] <= row_tile) ++expert;
    const uint32_t first = (row_tile - tables.tiles[expert]) * tile_rows;
    row_first = tables.rows[expert] + first;
    num_rows = min(tables.rows[expert + 1] - row_first, tile_rows);
  }
};
// Which tiles a block makes: every gridDim.x-th, tiles with the same rows one after the other.
template <class S, bool kGated>
struct TileOrder {
  static constexpr uint32_t kOuts = kGated ? kTilesOuts / 2 : kTilesOuts;
  const ExpertTables& tables;
  uint32_t num_out_tiles, num_mine;  // tiles of this block
  uint32_t row_stride, out_stride;   // to its next

  __device__ TileOrder(const ExpertTables& all, const ExpertArgs& args) : tables(all) {
    num_out_tiles = (args.outs + kOuts - 1) / kOuts;
    const uint32_t num_tiles = tables.tiles[args.num_experts] * num_out_tiles;
    num_mine = num_tiles > blockIdx.x ? (num_tiles - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
    row_stride = gridDim.x / num_out_tiles, out_stride = gridDim.x % num_out_tiles;
  }
  // There must be one.
  __device__ ExpertTile first() const {
    ExpertTile tile;
    tile.row_tile = blockIdx.x / num_out_tiles, tile.out_tile = blockIdx.x % num_out_tiles;
    find(&tile);
    return tile;
  }
  __device__ void next(ExpertTile* tile) const {
    tile->row_tile += row_stride, tile->out_tile += out_stride;
    if (tile->out_tile >= num_out_tiles) tile->out_tile -= num_out_tiles, ++tile->row_tile;
    find(tile);
  }
  __device__ void find(ExpertTile* tile) const {
    tile->find_rows(tables, S::kRows);
    tile->out_first = tile->out_tile * kOuts;
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
    const uint32_t mine = (end - begin + tile_rows - 1) / tile_rows, sum = warp_prefix_sum(mine);
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

// Where a block is: step `step` of a tile, `left` tiles from the last.
struct TilesPlace {
  ExpertTile tile;
  uint32_t step = 0, left;
};

// What a lane loads of the weights: kFragments rows, 8 apart, of a tile.
template <Encoding E, uint32_t kFragments>
struct TileRows {
  const PackedMatrix& matrix;
  PlanePointers planes;
  uint32_t num_steps;
  uint32_t rows[kFragments];  // of the matrix, quantised in steps

  __device__ TileRows(const PackedMatrix& m, uint32_t steps) : matrix(m), num_steps(steps) {
#pragma unroll
    for (int i = 0; i < kNumPlanes; ++i) planes[i] = m.plane[i];
  }
  __device__ void set(uint32_t i, uint32_t row) {
    rows[i] = E == Encoding::kF16 ? row : row * num_steps;
  }
  __device__ void load(Fragment<E>* fragment, uint32_t i, uint32_t step, uint32_t t) const {
    if constexpr (E == Encoding::kF16)
      fragment->load(matrix, rows[i], step, t);
    else
      fragment->load_step(planes, rows[i] + step, t);
  }
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
                           const TileOrder<S, kGated>& order) {
  constexpr uint32_t kWarpRows = kTilesOuts / S::kProducerWarps, kFragments = kWarpRows / 8;
  constexpr uint32_t kAhead = kFragments == 1 ? (is_quantized(E) && !kIsBytes<E> ? 4 : 2)
                                              : (E == Encoding::kF16 && S::kRows > 128 ? 1 : 2);  // steps: registers
  constexpr uint32_t kOuts = kGated ? kTilesOuts / 2 : kTilesOuts;
  const uint32_t lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, t = lane % 4;
  // Eight lanes, whose stores go together, have rows r and r + 4, which stand in different banks.
  const uint32_t row = warp * kWarpRows + lane / 4 % 2 * 4 + lane / 8;
  const uint32_t num_steps = (args.gate.columns + kStep - 1) / kStep, num_all = order.num_mine * num_steps;
  if (num_all == 0) return;
  // Gates lie in the first half of a tile, so a warp has those or others.
  TileRows<E, kFragments> weights(kGated && warp * kWarpRows >= kOuts ? args.up : args.gate, num_steps);
  TilesPlace here{order.first()}, ahead = here;
  here.left = ahead.left = order.num_mine - 1;
  const auto find_weights = [&] {
#pragma unroll
    for (uint32_t i = 0; i < kFragments; ++i)  // past the end the last output again, whose sums are not stored
      weights.set(i,
                  ahead.tile.expert * args.stride + min(ahead.tile.out_first + (row + i * 8) % kOuts, args.outs - 1));
  };
  // Whether that is in another tile.
  const auto next = [&](TilesPlace* place) {
    if (++place->step < num_steps || place->left == 0) return false;
    place->step = 0;
    --place->left;
    order.next(&place->tile);
    return true;
  };
  Fragment<E> fragments[kAhead][kFragments];
  const auto load_ahead = [&](Fragment<E>(&to)[kFragments]) {
#pragma unroll
    for (uint32_t i = 0; i < kFragments; ++i) weights.load(&to[i], i, ahead.step, t);
    if (next(&ahead)) find_weights();
  };
  find_weights();
#pragma unroll
  for (uint32_t d = 0; d < kAhead; ++d)
    if (d < num_all) load_ahead(fragments[d]);
  uint8_t* const to = ring.weights(0) + row * S::kRowBytes;
  const uint32_t places[2] = {(t ^ row % 8) * 16, ((4 + t) ^ row % 8) * 16};
  uint32_t s = 0, parity = 1, turn = 0;  // the stage; of its release; whose turn it is to copy x
  for (uint32_t first = 0; first < num_all; first += kAhead) {
#pragma unroll
    for (uint32_t d = 0; d < kAhead; ++d) {
      if (first + d >= num_all) break;
      SharedDecode<E> shared[kFragments];
#pragma unroll
      for (uint32_t i = 0; i < kFragments; ++i) shared[i] = SharedDecode<E>(fragments[d][i], t, here.step);
#pragma unroll
      for (uint32_t half = 0; half < 2; half += S::kAtOnce) {
#pragma unroll
        for (uint32_t i = 0; i < S::kAtOnce; ++i) barrier_wait(&ring.free[s + i], parity);
        // It takes as long as decoding some chunks.
        if (lane == 0 && warp == turn) copy_x(ring, map, here.tile, s, here.step * kStep + half * 64);
        turn = turn + 1 < S::kProducerWarps ? turn + 1 : 0;
        __syncwarp();
#pragma unroll
        for (uint32_t i = 0; i < kFragments; ++i) {
#pragma unroll
          for (uint32_t u = 0; u < 2 * S::kAtOnce; ++u) {
            uint32_t pairs[4];
            shared[i].decode(fragments[d][i], static_cast<int>(2 * half + u), t, here.step, pairs);
            *reinterpret_cast<uint4*>(to + s * S::kStageBytes + u / 2 * S::kStageBytes + i * 8 * S::kRowBytes +
                                      places[u % 2]) = {pairs[0], pairs[1], pairs[2], pairs[3]};
          }
        }
        shared_writes_visible();
        __syncwarp();
        if (lane < S::kAtOnce) barrier_arrive(&ring.full[s + lane]);
        s += S::kAtOnce;
        if (s == S::kStages) s = 0, parity ^= 1;
      }
      if (first + d + kAhead < num_all) load_ahead(fragments[d]);
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
          warpgroup_product(sums[i], x + (i * S::kConsumers * S::kTileBoxBytes + k * 32) / 16, weights + k * 32 / 16);
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
    add_terms(args, k, out, &first, &first_up);
    if (is_pair) add_terms(args, k, out + 1, &second, &second_up);
    if (args.activation == Activation::kSquaredRelu) {
      store_activated<__half>(args, k, out, first, first_up);
      if (is_pair) store_activated<__half>(args, k, out + 1, second, second_up);
      return;
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
__device__ void multiply_tiles(const TilesRing<S>& ring, const ExpertArgs& args, const TileOrder<S, kGated>& order) {
  constexpr uint32_t kOuts = kGated ? kTilesOuts / 2 : kTilesOuts, kStored = kOuts / 8;
  const uint32_t group = threadIdx.x / kTilesGroupThreads - S::kProducers, thread = threadIdx.x % kTilesGroupThreads;
  const uint32_t row = thread / kWarp * 16 + thread % kWarp / 4, column = thread % 4 * 2;
  const uint32_t num_stages = (args.gate.columns + kStep - 1) / kStep * 2;
  if (order.num_mine == 0) return;
  ExpertTile tile = order.first();
  for (uint32_t number = 0; number < order.num_mine; ++number) {
    if (number > 0) order.next(&tile);
    const uint32_t n = number * num_stages;
    uint32_t routed[S::kMine][2];  // UINT32_MAX: there is none
#pragma unroll
    for (uint32_t i = 0; i < S::kMine; ++i)
#pragma unroll
      for (uint32_t h = 0; h < 2; ++h) {
        const uint32_t r = (i * S::kConsumers + group) * kBoxRows + row + h * 8;
        routed[i][h] = r < tile.num_rows ? args.order[tile.row_first + r] : UINT32_MAX;
      }
    const uint32_t boxes = (tile.num_rows + kBoxRows - 1) / kBoxRows;
    const uint32_t active = (boxes + S::kConsumers - 1 - group) / S::kConsumers;
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
__global__ void __launch_bounds__(S::kThreads, 1)
    experts_tiles_kernel(const ExpertArgs args, const __grid_constant__ RowMap map) {
#if defined(LLMRT_SM_90A)
  uint8_t* base = dynamic_shared_at_1024();
  uint64_t* barriers = reinterpret_cast<uint64_t*>(base + S::kStages * S::kStageBytes);
  uint32_t* words = reinterpret_cast<uint32_t*>(barriers + 2 * S::kStages);
  const TilesRing<S> ring{base, barriers, barriers + S::kStages};
  const ExpertTables tables{words, words + args.num_experts + 1};
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < S::kStages; ++i) {
      barrier_init(&ring.full[i], 1 + S::kProducerWarps);
      barrier_init(&ring.free[i], S::kConsumers * kTilesGroupWarps);
    }
    barriers_visible();
    prefetch_map(map);
  }
  grid_dependency_wait();
  if (threadIdx.x < kWarp) fill_tables(tables, args, S::kRows);
  __syncthreads();
  const TileOrder<S, kGated> order(tables, args);
  if (threadIdx.x < S::kProducers * kTilesGroupThreads) {
    if constexpr (S::kProducerRegisters < S::kRegisters) fewer_registers<S::kProducerRegisters>();
    fill_tiles<S, E, kGated>(ring, args, map, order);
  } else {
    if constexpr (S::kConsumerRegisters > S::kRegisters) more_registers<S::kConsumerRegisters>();
    multiply_tiles<S, kGated>(ring, args, order);
  }
#else
  __trap();  // OpContext::has_warpgroups says that this is not the code that runs
#endif
}

// fn.template operator()<S>() of the shape with tiles of so many rows.
auto with_tiles(uint32_t tile_rows, auto fn) {
  return tile_rows == NarrowTiles::kRows   ? fn.template operator()<NarrowTiles>()
         : tile_rows == MiddleTiles::kRows ? fn.template operator()<MiddleTiles>()
                                           : fn.template operator()<WideTiles>();
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
  with_tiles(choice->tile_rows, [&]<class S>() {
    choice->threads = S::kThreads;
    choice->shared_bytes = S::kRingBytes + 2 * (shape.num_experts + 1) * 4;
    choice->stages = S::kStages;
  });
}

Status experts_tiles(const ExpertChoice& choice, const ExpertArgs& args, const void* x, const OpContext& at) {
  return with_encoding(args.gate.encoding, [&]<Encoding E>() {
    return with_tiles(choice.tile_rows,
                      [&]<class S>() { return start<E, S>(choice, args, static_cast<const __half*>(x), at); });
  });
}

}  // namespace llmrt::cuda
