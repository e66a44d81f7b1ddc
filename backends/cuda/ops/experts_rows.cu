// Products of experts for few rows: gate, other half and activation to f16, or down, each product with its weight
// to f32 partial products of the routed rows. x f32 (gate) or f16 (down), weights f16 or quantised.
//
// Bound by reading the weights of the distinct experts once. A block has one expert, its rows (up to `rows_max` at a
// time; more read the weights again) in shared memory, and some tiles of 16 rows of W: 16 outputs, or the gates and
// other halves of 8. A tile's columns are shared by `splits` of the warps in steps of 128; each warp has a ring of
// slots of its own (experts_slots.cuh), which runs through its tiles, and waits for no other warp before its last tile.
// Then the sums of a tile's warps are added, in order of warps.
//
// The experts of a step: with fewer routed rows than experts a block has the place of a routed row, and those of rows
// whose expert an earlier row has leave; else the place of an expert. Each block looks through the ids for its rows, or
// takes them from the order of many (experts_order.cu).
#include <algorithm>
#include <bit>
#include <cmath>

#include "backends/cuda/activation.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/experts_slots.cuh"
#include "backends/cuda/ops/matmul.h"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kRowsWarpsMax = 8;
constexpr uint32_t kRowsOuts = kSlotRows;

struct RowsArgs {
  ExpertArgs experts;
  uint32_t splits, tiles, rows_max;
  uint32_t by_row;  // blocks have the place of a routed row
};

// What a block has in dynamic shared memory, one behind the other.
struct RowsShared {
  uint8_t* ring;  // [warps][kSlots] slots
  SharedX x;
  float* sums;  // [tiles][warps][rows_max][16]
};
struct RowsSizes {
  uint32_t ring, x, x_sums, sums;
  __host__ __device__ uint32_t total() const { return ring + x + x_sums + sums; }
};
__host__ __device__ inline RowsSizes rows_sizes(uint32_t slot_bytes, bool needs_sums, uint32_t columns, uint32_t rows,
                                                uint32_t warps, uint32_t tiles) {
  const uint32_t units = (columns + kStep - 1) / kStep * kSlotUnits;
  return {warps * kSlots * slot_bytes, rows * SharedX::stride_of(columns),
          needs_sums ? (rows + 1) / 2 * units * static_cast<uint32_t>(sizeof(float2)) : 0,
          tiles * warps * rows * kRowsOuts * 4};
}
template <Encoding E>
__device__ RowsShared rows_shared(const RowsSizes& sizes, uint32_t columns) {
  uint8_t* bytes = dynamic_shared();
  RowsShared shared;
  shared.ring = bytes + threadIdx.x / kWarp * kSlots * Slot<E>::kBytes;
  shared.x = {bytes + sizes.ring, reinterpret_cast<float2*>(bytes + sizes.ring + sizes.x), SharedX::stride_of(columns),
              (columns + kStep - 1) / kStep * kSlotUnits};
  shared.sums = reinterpret_cast<float*>(bytes + sizes.ring + sizes.x + sizes.x_sums);
  return shared;
}

// The warp's ring: `copy` begins the copies of a place, `take` uses a slot. `num_places` of them, in their order.
template <Encoding E>
__device__ void through_ring(uint8_t* ring, uint32_t num_places, auto&& copy, auto&& take) {
#pragma unroll
  for (uint32_t s = 0; s + 1 < kSlots; ++s) {
    if (s < num_places) copy(ring + s * Slot<E>::kBytes);
    copy_async_commit();
  }
  for (uint32_t n = 0; n < num_places; ++n) {
    copy_async_wait<kSlots - 2>();
    __syncwarp();  // all lanes have their copies, and have read the slot before
    if (n + kSlots - 1 < num_places) copy(ring + (n + kSlots - 1) % kSlots * Slot<E>::kBytes);
    copy_async_commit();
    take(ring + n % kSlots * Slot<E>::kBytes);
  }
  __syncwarp();
}

// Sums of four lanes' units: lane t gets number t of the four.
__device__ inline float sum_units(const float (&sum)[4], uint32_t t) {
  float all[4];
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    const float two = sum[i] + __shfl_xor_sync(kFullMask, sum[i], 1);
    all[i] = two + __shfl_xor_sync(kFullMask, two, 2);
  }
  return t < 2 ? (t == 0 ? all[0] : all[1]) : (t == 2 ? all[2] : all[3]);
}

// A place of a warp: step `step` of tile `tile` of the matrix.
struct RowsPlace {
  uint32_t tile, step;
};

// The tiles of one expert that a block makes.
template <Encoding E, uint32_t kPairs, bool kGated>
struct RowsBlock {
  static constexpr uint32_t kTileOuts = kGated ? kRowsOuts / 2 : kRowsOuts;
  const RowsArgs& args;
  const RowsShared& shared;
  uint32_t expert, num_rows;
  const uint32_t* rows;  // [num_rows]: the routed rows

  __device__ uint32_t warps() const { return blockDim.x / kWarp; }
  __device__ uint32_t lanes_of_tiles() const { return warps() / args.splits; }
  __device__ uint32_t tile_first() const { return blockIdx.x * args.tiles * lanes_of_tiles(); }

  // A tile past the end reads the last output again; its sums are not stored.
  __device__ uint32_t w_row(uint32_t tile, uint32_t r) const {
    const uint32_t out = tile * kTileOuts + (kGated ? r % 8 : r);
    return expert * args.experts.stride + min(out, args.experts.outs - 1);
  }

  // All of the warp's places.
  __device__ void multiply() const {
    const ExpertArgs& a = args.experts;
    const SlotLane lane;
    const uint32_t warp = threadIdx.x / kWarp, g = lane.g, t = lane.t;
    const uint32_t num_steps = (a.gate.columns + kStep - 1) / kStep, part = warp % args.splits;
    const uint32_t num_tiles = (a.outs + kTileOuts - 1) / kTileOuts, own_first = tile_first() + warp / args.splits;
    // A warp's steps of all of its tiles, one after the other. Shares differ by one step at most.
    const uint32_t share = (num_steps - part + args.splits - 1) / args.splits;
    const uint32_t own_tiles =
        num_tiles > own_first ? min(args.tiles, (num_tiles - own_first + lanes_of_tiles() - 1) / lanes_of_tiles()) : 0;
    const PackedMatrix& lower = kGated ? a.up : a.gate;
    const uint32_t row_steps = E == Encoding::kF16 ? 1 : num_steps;
    const auto slot_place = [&](uint32_t tile) -> SlotPlace {
      return {w_row(tile, g) * row_steps, w_row(tile, g + 8) * row_steps,
              w_row(tile, lane.lane % kSlotRows) * row_steps};
    };
    // Whether the next place is in another tile.
    const auto next = [&](RowsPlace* place) {
      place->step += args.splits;
      if (place->step < num_steps) return false;
      place->step = part;
      place->tile += lanes_of_tiles();
      return true;
    };
    RowsPlace ahead{own_first, part}, here = ahead;
    SlotPlace from = slot_place(ahead.tile);
    const uint32_t tile_steps = lanes_of_tiles() * kTileOuts * row_steps;
    const uint32_t num_pairs = (num_rows + 1) / 2;
    SlotX x(true, lane);
    const uint8_t* own_x = shared.x.rows + g % 2 * shared.x.stride + g / 2 * kUnit * 2 + t * 16;
    float* to = shared.sums + (warp * args.rows_max + t % 2) * kRowsOuts + t / 2 * 8 + g;
    float sum[kPairs][4] = {};
    through_ring<E>(
        shared.ring, own_tiles * share,
        [&](uint8_t* slot) {
          copy_slot<E>(slot, a.gate, lower, from, ahead.step, lane);
          if (!next(&ahead)) return;
          from.move(tile_steps);
          if ((ahead.tile + 1) * kTileOuts > a.outs) from = slot_place(ahead.tile);
        },
        [&](const uint8_t* slot) {
          SlotFactors<E> w;
          const auto index = [&](uint32_t r) {
            return E == Encoding::kQ6_K ? w_row(here.tile, r) * num_steps + here.step : here.step;
          };
          w.load(slot, index(g), index(g + 8), lane);
#pragma unroll
          for (uint32_t p = 0; p < kPairs; ++p) {
            if (p < num_pairs) {
              x.load(own_x + p * 2 * shared.x.stride + here.step * kStep * 2);
              const float2 x_sums =
                  kIsStored<E> ? shared.x.sums[p * shared.x.num_units + here.step * kSlotUnits + t] : float2{};
              multiply_slot<E>(w, x, x_sums, sum[p]);
            }
          }
          if (!next(&here)) return;
#pragma unroll
          for (uint32_t p = 0; p < kPairs; ++p) {
            if (p < num_pairs) {
              const float value = kSlotSumFactor<E> * sum_units(sum[p], t);
              if (2 * p + t % 2 < args.rows_max) to[2 * p * kRowsOuts] = value;
#pragma unroll
              for (float& s : sum[p]) s = 0;
            }
          }
          to += warps() * args.rows_max * kRowsOuts;
        });
  }

  // Output `o` of 16 of row r in tile number i of group `group` of warps.
  __device__ float total(uint32_t i, uint32_t group, uint32_t r, uint32_t o) const {
    const float* at = shared.sums + (((i * warps() + group * args.splits) * args.rows_max) + r) * kRowsOuts + o;
    float sum = at[0];
    for (uint32_t w = 1; w < args.splits; ++w) sum += at[w * args.rows_max * kRowsOuts];
    return sum;
  }
  __device__ void store() const {
    const ExpertArgs& a = args.experts;
    const uint32_t of_row = args.tiles * lanes_of_tiles() * kTileOuts;
    for (uint32_t n = threadIdx.x; n < num_rows * of_row; n += blockDim.x) {
      const uint32_t r = n / of_row, o = n % kTileOuts, tile = n % of_row / kTileOuts;
      const uint32_t out = (tile_first() + tile) * kTileOuts + o;
      if (out >= a.outs) continue;
      const uint32_t i = tile / lanes_of_tiles(), group = tile % lanes_of_tiles(), k = rows[r];
      const uint64_t bias_at = uint64_t{expert} * a.stride + out, to = uint64_t{k} * a.outs + out;
      const float first = total(i, group, r, o) + (a.gate_bias ? a.gate_bias[bias_at] : 0.0f);
      if constexpr (kGated) {
        const float other = total(i, group, r, o + 8) + (a.up_bias ? a.up_bias[bias_at] : 0.0f);
        static_cast<__half*>(a.out)[to] = __float2half_rn(gated(a.activation, first, other));
      } else {
        static_cast<float*>(a.out)[to] = a.weights[k] * first;
      }
    }
  }
};

// How many blocks have room on a multiprocessor: their registers.
template <Encoding E>
constexpr uint32_t kRowsBlocksSm = E == Encoding::kF16 ? 1 : 2;

template <Encoding E, uint32_t kPairs, bool kGated>
__global__ void __launch_bounds__(kRowsWarpsMax* kWarp, kRowsBlocksSm<E>) experts_rows_kernel(const RowsArgs args) {
  using X = std::conditional_t<kGated, float, __half>;
  __shared__ uint32_t rows[kPairs * 2], counts[kRowsWarpsMax];
  const ExpertArgs& a = args.experts;
  const uint32_t columns = a.gate.columns, routed = live_rows(a) * a.per_row;
  const RowsShared shared = rows_shared<E>(
      rows_sizes(Slot<E>::kBytes, kIsStored<E>, columns, args.rows_max, blockDim.x / kWarp, args.tiles), columns);
  grid_dependency_wait();
  if (args.by_row && blockIdx.y >= routed) return;
  const uint32_t expert = args.by_row ? static_cast<uint32_t>(a.ids[blockIdx.y]) : blockIdx.y;
  const uint32_t first_row = a.order ? a.offsets[expert] : 0;
  uint32_t total = 1;
  for (uint32_t skip = 0; skip < total; skip += args.rows_max) {
    if (a.order) {
      total = a.offsets[expert + 1] - first_row;
      if (total == 0) return;
      __syncthreads();  // the rows before have been read
      if (threadIdx.x < args.rows_max && skip + threadIdx.x < total)
        rows[threadIdx.x] = a.order[first_row + skip + threadIdx.x];
      __syncthreads();
    } else {
      total = find_rows(a.ids, routed, expert, skip, args.rows_max, rows, counts);
      if (total == 0) return;
      if (args.by_row && skip == 0 && rows[0] != blockIdx.y) return;  // the block of an earlier row has them
    }
    const uint32_t num_rows = min(total - skip, args.rows_max);
    for (uint32_t r = 0; r < (num_rows + 1) / 2 * 2; ++r)
      shared.x.fill<E>(r,
                       r < num_rows
                           ? static_cast<const X*>(a.x) + uint64_t{kGated ? rows[r] / a.per_row : rows[r]} * columns
                           : nullptr,
                       columns);
    __syncthreads();
    const RowsBlock<E, kPairs, kGated> block{args, shared, expert, num_rows, rows};
    block.multiply();
    __syncthreads();
    block.store();
  }
}

// ---- down as a whole -----------------------------------------------------------------------------------------------

// A block makes 16 outputs of a row: its warps take the steps of all of the row's experts in turn.
template <Encoding E>
__global__ void __launch_bounds__(kRowsWarpsMax* kWarp, kRowsBlocksSm<E>) experts_joined_kernel(const ExpertArgs args) {
  __shared__ float sums[kRowsWarpsMax][kRowsOuts];
  const SlotLane lane;
  const uint32_t warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp, g = lane.g, t = lane.t;
  const uint32_t columns = args.gate.columns, num_steps = (columns + kStep - 1) / kStep;
  const uint32_t out_first = blockIdx.x * kRowsOuts, row = blockIdx.y, num_places = args.per_row * num_steps;
  const RowsShared shared =
      rows_shared<E>(rows_sizes(Slot<E>::kBytes, kIsStored<E>, columns, args.per_row, warps, 0), columns);
  const uint32_t live = live_rows(args);
  grid_dependency_wait();
  if (row >= live) return;
  const int32_t* ids = args.ids + row * args.per_row;
  // Row r of 16 of the matrix of an expert of the row, in steps (of f16 in rows).
  const auto w_index = [&](uint32_t k, uint32_t r) {
    return (static_cast<uint32_t>(ids[k]) * args.stride + min(out_first + r, args.outs - 1)) *
           (E == Encoding::kF16 ? 1 : num_steps);
  };
  for (uint32_t k = 0; k < args.per_row; ++k)
    shared.x.fill<E>(k, static_cast<const __half*>(args.x) + (uint64_t{row} * args.per_row + k) * columns, columns);
  __syncthreads();
  SlotX x(g % 2 == 0, lane);  // the second row of the pair is zeros
  const uint8_t* own_x = shared.x.rows + g / 2 * kUnit * 2 + t * 16;
  float out[2] = {};  // of outputs g and g + 8, of unit t
  uint32_t ahead = warp, here = warp;
  through_ring<E>(
      shared.ring, num_places > warp ? (num_places - warp + warps - 1) / warps : 0,
      [&](uint8_t* slot) {
        const uint32_t k = ahead / num_steps;
        const SlotPlace from{w_index(k, g), w_index(k, g + 8), w_index(k, lane.lane % kSlotRows)};
        copy_slot<E>(slot, args.gate, args.gate, from, ahead % num_steps, lane);
        ahead += warps;
      },
      [&](const uint8_t* slot) {
        const uint32_t k = here / num_steps, step = here % num_steps;
        SlotFactors<E> w;
        const auto index = [&](uint32_t r) { return E == Encoding::kQ6_K ? w_index(k, r) + step : step; };
        w.load(slot, index(g), index(g + 8), lane);
        x.load(own_x + k * shared.x.stride + step * kStep * 2);
        float2 x_sums{};
        if constexpr (kIsStored<E>)
          x_sums.x =
              reinterpret_cast<const float*>(shared.x.sums + k / 2 * shared.x.num_units + step * kSlotUnits + t)[k % 2];
        float sum[4] = {};
        multiply_slot<E>(w, x, x_sums, sum);
        const float weight = args.weights[row * args.per_row + k];
        out[0] += weight * sum[0];
        out[1] += weight * sum[2];
        here += warps;
      });
  const float all[4] = {out[0], 0, out[1], 0};
  const float value = kSlotSumFactor<E> * sum_units(all, t);
  if (t % 2 == 0) sums[warp][g + t / 2 * 8] = value;
  __syncthreads();
  const uint32_t to = out_first + threadIdx.x;
  if (threadIdx.x >= kRowsOuts || to >= args.outs) return;
  float total = 0;
  for (uint32_t w = 0; w < warps; ++w) total += sums[w][threadIdx.x];
  if (args.gate_bias)
    for (uint32_t k = 0; k < args.per_row; ++k)
      total += args.weights[row * args.per_row + k] *
               args.gate_bias[uint64_t{static_cast<uint32_t>(ids[k])} * args.stride + to];
  static_cast<float*>(args.out)[uint64_t{row} * args.outs + to] = total;
}

// ---- geometry ------------------------------------------------------------------------------------------------------

struct SlotFacts {
  uint32_t bytes = 0;
  bool sums_x = false;
};
SlotFacts slot_facts(Encoding encoding) {
  SlotFacts facts;
  (void)with_encoding(encoding, [&]<Encoding E>() {
    facts = {Slot<E>::kBytes, kIsStored<E>};
    return Status();
  });
  return facts;
}
// The kernel's own shared memory beside the dynamic one, rounded up.
constexpr uint32_t kStaticBytes = 1024;

uint32_t rows_shared_bytes(const ExpertShape& shape, uint32_t rows, uint32_t warps, uint32_t tiles) {
  const SlotFacts slot = slot_facts(shape.encoding);
  return rows_sizes(slot.bytes, slot.sums_x, shape.columns, rows, warps, tiles).total();
}
// By the shape of the weights and the device alone, as is the order of a row's sums.
uint32_t rows_warps(const ExpertShape& shape, const CompileInputs& inputs) {
  uint32_t warps = kRowsWarpsMax;
  while (warps > 1 && rows_shared_bytes(shape, 2, warps, 1) + kStaticBytes > inputs.device.shared_bytes_max) warps /= 2;
  return warps;
}

}  // namespace

uint32_t experts_rows_max(const ExpertShape& shape, const CompileInputs& inputs) {
  const uint32_t warps = rows_warps(shape, inputs);
  uint32_t rows = 2;
  while (rows < kExpertsRowsMax &&
         rows_shared_bytes(shape, rows + 2, warps, 1) + kStaticBytes <= inputs.device.shared_bytes_max)
    rows += 2;
  return rows;
}

void lay_out_experts_rows(const ExpertShape& shape, const CompileInputs& inputs, ExpertChoice* choice) {
  const uint32_t num_steps = ceil_div(shape.columns, kStep), warps = rows_warps(shape, inputs);
  choice->splits = std::min(std::bit_floor(std::max(num_steps / inputs.tuning.expert_steps_warp, 1u)), warps);
  const uint32_t tile_outs = shape.is_gated ? kRowsOuts / 2 : kRowsOuts, tile_lanes = warps / choice->splits;
  const uint32_t rounds = ceil_div(ceil_div(shape.outs, tile_outs), tile_lanes);
  const uint32_t routed = shape.num_rows * shape.per_row,
                 places = choice->is_ordered ? shape.num_experts : std::min(routed, shape.num_experts);
  // Room for what nearly all experts have.
  const double mean = rows_an_expert(shape);
  choice->rows_max = std::min({round_up(static_cast<uint32_t>(mean + 2.5 * std::sqrt(mean)), 2u),
                               round_up(std::max(shape.num_rows, 1u), 2u), experts_rows_max(shape, inputs)});
  // So that all blocks that are likely to have work start at once, or each has some tiles.
  const double experts = expected_distinct_experts(shape.num_experts, shape.per_row, shape.num_rows);
  const double blocks = inputs.device.num_sms * inputs.tuning.expert_blocks_sm;
  choice->tiles = std::clamp(static_cast<uint32_t>(std::ceil(rounds * experts / blocks)), 1u,
                             std::min(rounds, inputs.tuning.expert_tiles_max));
  // Fewer tiles for a second block on a multiprocessor, but not a single one, since each block reads x.
  const auto fits = [&](uint32_t tiles, uint32_t blocks_sm) {
    return (rows_shared_bytes(shape, choice->rows_max, warps, tiles) + kStaticBytes) * blocks_sm <=
           inputs.device.shared_bytes_max;
  };
  uint32_t tiles = choice->tiles;
  while (tiles > 2 && !fits(tiles, 2)) --tiles;
  if (fits(tiles, 2)) choice->tiles = tiles;
  while (choice->tiles > 1 && !fits(choice->tiles, 1)) --choice->tiles;
  choice->grid = {ceil_div(rounds, choice->tiles), std::max(places, 1u)};
  choice->threads = warps * kWarp;
  choice->shared_bytes = rows_shared_bytes(shape, choice->rows_max, warps, choice->tiles);
}

Status experts_rows(const ExpertChoice& choice, const ExpertArgs& args, const OpContext& at) {
  const RowsArgs rows{args, choice.splits, choice.tiles, choice.rows_max, choice.grid.y < args.num_experts};
  return with_encoding(args.gate.encoding, [&]<Encoding E>() {
    if (choice.is_gated)
      return launch(at, choice, choice.rows_max > 8 ? experts_rows_kernel<E, 8, true> : experts_rows_kernel<E, 4, true>,
                    rows);
    return launch(at, choice, choice.rows_max > 8 ? experts_rows_kernel<E, 8, false> : experts_rows_kernel<E, 4, false>,
                  rows);
  });
}

bool lay_out_experts_joined(const ExpertShape& shape, const CompileInputs& inputs, ExpertChoice* choice) {
  uint32_t warps = kRowsWarpsMax;
  const auto bytes = [&] { return rows_shared_bytes(shape, shape.per_row, warps, 0); };
  while (warps > 1 && bytes() + kStaticBytes > inputs.device.shared_bytes_max) warps /= 2;
  if (bytes() + kStaticBytes > inputs.device.shared_bytes_max) return false;
  choice->grid = {ceil_div(shape.outs, kRowsOuts), shape.num_rows};
  choice->threads = warps * kWarp;
  choice->shared_bytes = bytes();
  return true;
}

Status experts_joined(const ExpertChoice& choice, const ExpertArgs& args, const OpContext& at) {
  return with_encoding(args.gate.encoding,
                       [&]<Encoding E>() { return launch(at, choice, experts_joined_kernel<E>, args); });
}

}  // namespace llmrt::cuda
