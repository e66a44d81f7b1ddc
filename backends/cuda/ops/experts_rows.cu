// Products of experts for few rows: gate, other half and activation to f16, or down, each product with its weight
// to f32 partial products of the routed rows. x f32 (gate) or f16 (down), weights f16 or quantised.
//
// Bound by reading the weights of the distinct experts once. A tile is 16 rows of W: 16 outputs, or the gates and other
// halves of 8. Its columns are shared by `splits` of a block's warps in steps of 128; the tiles that the warps of a
// block have at a time are a round. A block has some rounds of an expert, whose rows (up to `rows_max` at a time; more
// read the weights again) are in shared memory. Each warp has a ring of slots of its own (experts_slots.cuh), which
// runs through its rounds. After each `rounds` of them the sums of a tile's warps are added, in order of warps.
//
// Where the rounds are many, all blocks start at once and share them evenly by what they take, which grows with an
// expert's rows: each counts the rows of all experts and finds its share (RowsShares). Where they are few that would
// take longer than it gains: a block has the place of a routed row, and those of rows whose expert an earlier row has
// leave. A block looks through the ids for its rows, or takes them from the order of many (experts_order.cu).
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
constexpr uint32_t kSumsStride = kRowsOuts + 4;  // other banks for neighbouring rows

struct RowsArgs {
  ExpertArgs experts;
  uint32_t splits, rounds, rows_max;
  uint32_t place_rounds;  // of a block that has the place of a routed row; 0: blocks share all rounds
};

// What a block has in dynamic shared memory, one behind the other.
struct RowsShared {
  uint8_t* ring;  // [warps][kSlots] slots
  SharedX x;
  SlotScales scales;  // of the warp
  float* sums;        // [rounds][warps][rows_max][kSumsStride]
  uint32_t* shares;   // [num_experts + 1]
};
struct RowsSizes {
  uint32_t ring, scales, x, x_sums, sums;
  __host__ __device__ uint32_t total() const { return ring + scales + x + x_sums + sums; }  // without shares
};
__host__ __device__ inline RowsSizes rows_sizes(uint32_t slot_bytes, bool needs_sums, uint32_t columns, uint32_t rows,
                                                uint32_t warps, uint32_t rounds) {
  const uint32_t units = (columns + kStep - 1) / kStep * kSlotUnits;
  return {warps * kSlots * slot_bytes, warps * SlotScales::kBytes, rows * shared_x_stride(columns),
          needs_sums ? (rows + 1) / 2 * units * static_cast<uint32_t>(sizeof(float2)) : 0,
          rounds * warps * rows * kSumsStride * 4};
}
template <Encoding E>
__device__ RowsShared rows_shared(const RowsSizes& sizes, uint32_t columns) {
  uint8_t* bytes = dynamic_shared();
  RowsShared shared;
  shared.ring = bytes + threadIdx.x / kWarp * kSlots * Slot<E>::kBytes;
  bytes += sizes.ring;
  shared.scales.of_unit = reinterpret_cast<float4*>(bytes + threadIdx.x / kWarp * SlotScales::kBytes);
  bytes += sizes.scales;
  shared.x = {bytes, reinterpret_cast<float2*>(bytes + sizes.x), shared_x_stride(columns),
              (columns + kStep - 1) / kStep * kSlotUnits};
  bytes += sizes.x + sizes.x_sums;
  shared.sums = reinterpret_cast<float*>(bytes);
  shared.shares = reinterpret_cast<uint32_t*>(bytes + sizes.sums);
  return shared;
}

// The warp's ring: `copy` begins the copies of a place, `take` uses a slot; `num_places` of them, in their order.
// `prepare` makes what `take` reads while the first copies are under way.
template <Encoding E>
__device__ void through_ring(uint8_t* ring, uint32_t num_places, auto&& copy, auto&& prepare, auto&& take) {
#pragma unroll
  for (uint32_t s = 0; s + 1 < kSlots; ++s) {
    if (s < num_places) copy(ring + s * Slot<E>::kBytes);
    copy_async_commit();
  }
  prepare();
  for (uint32_t n = 0; n < num_places; ++n) {
    copy_async_wait<kSlots - 2>();
    __syncwarp();  // all lanes have their copies, and have read the slot before
    if (n + kSlots - 1 < num_places) copy(ring + (n + kSlots - 1) % kSlots * Slot<E>::kBytes);
    copy_async_commit();
    take(ring + n % kSlots * Slot<E>::kBytes);
  }
  __syncwarp();
}

// A place of a warp: step `step` of tile `tile` of the matrix.
struct RowsPlace {
  uint32_t tile, step;
};
// Rounds of an expert.
struct RowsRange {
  uint32_t begin, end;
};

// Rows of one expert and the rounds that a block makes for them.
template <Encoding E, uint32_t kGroups, bool kGated>
struct RowsBlock {
  static constexpr uint32_t kTileOuts = kGated ? kRowsOuts / 2 : kRowsOuts;
  const RowsArgs& args;
  const RowsShared& shared;
  uint32_t expert, num_rows;
  const uint32_t* rows;  // [num_rows]: the routed rows
  RowsRange range;

  __device__ uint32_t warps() const { return blockDim.x / kWarp; }
  __device__ uint32_t round_tiles() const { return warps() / args.splits; }

  // A tile past the end reads the last output again; its sums are not stored.
  __device__ uint32_t w_row(uint32_t tile, uint32_t r) const {
    const uint32_t out = tile * kTileOuts + (kGated ? r % 8 : r);
    return expert * args.experts.stride + min(out, args.experts.outs - 1);
  }

  // By all warps, which have equal numbers of tiles. `fill_x` brings the rows to shared memory.
  __device__ void multiply(auto&& fill_x) const {
    const ExpertArgs& a = args.experts;
    const SlotLane lane;
    const uint32_t warp = threadIdx.x / kWarp, g = lane.g, t = lane.t;
    const uint32_t num_steps = (a.gate.columns + kStep - 1) / kStep, part = warp % args.splits;
    // A warp's steps of all of its tiles, one after the other. Shares differ by one step at most.
    const uint32_t share = (num_steps - part + args.splits - 1) / args.splits;
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
      place->tile += round_tiles();
      return true;
    };
    RowsPlace ahead{range.begin * round_tiles() + warp / args.splits, part}, here = ahead;
    SlotPlace from = slot_place(ahead.tile);
    const uint32_t tile_steps = round_tiles() * kTileOuts * row_steps;
    const uint32_t num_groups = (num_rows + 7) / 8;
    const uint8_t* own_x[kGroups];  // of columns that have no row the last one's, whose sums are not stored
    const float2* own_sums[kGroups];
#pragma unroll
    for (uint32_t c = 0; c < kGroups; ++c) {
      own_x[c] = shared.x.rows + min(c * 8 + g, num_rows - 1) * shared.x.stride + t * 16;
      own_sums[c] = shared.x.sums + min(c * 4 + t, (num_rows - 1) / 2) * shared.x.num_units;
    }
    float* const to = shared.sums + warp * args.rows_max * kSumsStride + g;
    float sum[kGroups][4] = {};
    uint32_t round = range.begin, held = 0;  // rounds whose sums are in shared memory
    through_ring<E>(
        shared.ring, (range.end - range.begin) * share,
        [&](uint8_t* slot) {
          copy_slot<E>(slot, a.gate, lower, from, ahead.step, lane);
          if (!next(&ahead)) return;
          from.move(tile_steps);
          if ((ahead.tile + 1) * kTileOuts > a.outs) from = slot_place(ahead.tile);
        },
        fill_x,
        [&](const uint8_t* slot) {
          const auto index = [&](uint32_t r) {
            return E == Encoding::kQ6_K ? w_row(here.tile, r) * num_steps + here.step : here.step;
          };
          multiply_slot<E, kGroups>(
              slot, index(g), index(g + 8), lane, shared.scales, num_groups,
              [&](uint32_t c, uint32_t u) {
                return *reinterpret_cast<const uint4*>(own_x[c] + (here.step * kSlotUnits + u) * (kUnit * 2));
              },
              [&](uint32_t c, uint32_t u) { return own_sums[c][here.step * kSlotUnits + u]; }, sum);
          if (!next(&here)) return;
#pragma unroll
          for (uint32_t c = 0; c < kGroups; ++c)
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) {
              const uint32_t r = c * 8 + t * 2 + i % 2;
              if (r < num_rows)
                to[(held * warps() * args.rows_max + r) * kSumsStride + i / 2 * 8] = kSlotSumFactor<E> * sum[c][i];
              sum[c][i] = 0;
            }
          if (++held < args.rounds && round + held < range.end) return;
          __syncthreads();
          store(round, held);
          __syncthreads();
          round += held;
          held = 0;
        });
  }

  // Output `o` of 16 of row r in round number i of those that are held, of tile `tile` of the round.
  __device__ float total(uint32_t i, uint32_t tile, uint32_t r, uint32_t o) const {
    const float* at = shared.sums + (((i * warps() + tile * args.splits) * args.rows_max) + r) * kSumsStride + o;
    float sum = at[0];
    for (uint32_t w = 1; w < args.splits; ++w) sum += at[w * args.rows_max * kSumsStride];
    return sum;
  }
  // Rounds [first, first + count), which are held.
  __device__ void store(uint32_t first, uint32_t count) const {
    const ExpertArgs& a = args.experts;
    const uint32_t of_row = count * round_tiles() * kTileOuts;
    for (uint32_t n = threadIdx.x; n < num_rows * of_row; n += blockDim.x) {
      const uint32_t r = n / of_row, o = n % kTileOuts, tile = n % of_row / kTileOuts;
      const uint32_t out = (first * round_tiles() + tile) * kTileOuts + o;
      if (out >= a.outs) continue;
      const uint32_t i = tile / round_tiles(), in_round = tile % round_tiles(), k = rows[r];
      const uint64_t bias_at = uint64_t{expert} * a.stride + out;
      float value = total(i, in_round, r, o) + (a.gate_bias ? a.gate_bias[bias_at] : 0.0f);
      if constexpr (kGated) {
        float other = total(i, in_round, r, o + 8) + (a.up_bias ? a.up_bias[bias_at] : 0.0f);
        add_terms(a, k, out, &value, &other);
        store_activated<__half>(a, k, out, value, other);
      } else {
        static_cast<float*>(a.out)[uint64_t{k} * a.outs + out] = a.weights[k] * value;
      }
    }
  }
};

// What a round of each expert takes, summed up: entry e is that of the experts below e. By counts of instructions, a
// pass over the weights takes twice as long as eight rows in it.
struct RowsShares {
  uint32_t* before;  // [num_experts + 1], shared

  __device__ static uint32_t cost(uint32_t rows, uint32_t rows_max) {
    return (rows + rows_max - 1) / rows_max * 2 + (rows + 7) / 8;
  }
  // By all threads of the block.
  __device__ void fill(const ExpertArgs& a, uint32_t routed, uint32_t rows_max) const {
    for (uint32_t e = threadIdx.x; e < a.num_experts; e += blockDim.x)
      before[e] = a.order ? a.offsets[e + 1] - a.offsets[e] : 0;
    __syncthreads();
    if (!a.order)
      for (uint32_t i = threadIdx.x; i < routed; i += blockDim.x) atomicAdd(&before[a.ids[i]], 1u);
    __syncthreads();
    if (threadIdx.x < kWarp) {
      const uint32_t lane = threadIdx.x;
      uint32_t all = 0;
      for (uint32_t first = 0; first < a.num_experts; first += kWarp) {
        const uint32_t e = first + lane, mine = e < a.num_experts ? cost(before[e], rows_max) : 0;
        const uint32_t sum = warp_prefix_sum(mine);
        if (e < a.num_experts) before[e] = all + sum - mine;
        all += __shfl_sync(kFullMask, sum, kWarp - 1);
      }
      if (lane == 0) before[a.num_experts] = all;
    }
    __syncthreads();
  }
  // The expert that has position `at` of all rounds.
  __device__ uint32_t expert_of(uint32_t at, uint32_t num_experts, uint32_t rounds) const {
    uint32_t low = 0, high = num_experts;  // before[low] * rounds <= at
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      (before[middle] * rounds <= at ? low : high) = middle;
    }
    return low;
  }
};

// How many blocks have room on a multiprocessor: their registers.
constexpr uint32_t rows_blocks_sm(Encoding encoding) {
  return encoding == Encoding::kF16 ? 2 : 3;
}

// All rows of an expert.
template <Encoding E, uint32_t kGroups, bool kGated>
__device__ void multiply_rows(const RowsArgs& args, const RowsShared& shared, uint32_t expert, const RowsRange& range) {
  using X = std::conditional_t<kGated, float, __half>;
  __shared__ uint32_t rows[kGroups * 8], counts[kRowsWarpsMax];
  const ExpertArgs& a = args.experts;
  const uint32_t columns = a.gate.columns, first_row = a.order ? a.offsets[expert] : 0;
  uint32_t total = 1;
  for (uint32_t skip = 0; skip < total; skip += args.rows_max) {
    if (a.order) {
      total = a.offsets[expert + 1] - first_row;
      if (threadIdx.x < args.rows_max && skip + threadIdx.x < total)
        rows[threadIdx.x] = a.order[first_row + skip + threadIdx.x];
      __syncthreads();
    } else {
      total = find_rows(a.ids, live_rows(a) * a.per_row, expert, skip, args.rows_max, rows, counts);
      // The block of an earlier row has them.
      if (args.place_rounds > 0 && skip == 0 && rows[0] != blockIdx.y) return;
    }
    const uint32_t num_rows = min(total - skip, args.rows_max);
    RowsBlock<E, kGroups, kGated>{args, shared, expert, num_rows, rows, range}.multiply([&] {
      shared.x.fill<E>(num_rows, columns, [&](uint32_t r) {
        return static_cast<const X*>(a.x) + uint64_t{kGated ? rows[r] / a.per_row : rows[r]} * columns;
      });
      __syncthreads();
    });
  }
}

template <Encoding E, uint32_t kGroups, bool kGated>
__global__ void __launch_bounds__(kRowsWarpsMax* kWarp, rows_blocks_sm(E)) experts_rows_kernel(const RowsArgs args) {
  const ExpertArgs& a = args.experts;
  const uint32_t columns = a.gate.columns, routed = live_rows(a) * a.per_row;
  const RowsShared shared = rows_shared<E>(
      rows_sizes(Slot<E>::kBytes, kIsStored<E>, columns, args.rows_max, blockDim.x / kWarp, args.rounds), columns);
  const uint32_t round_outs = blockDim.x / kWarp / args.splits * (kGated ? kRowsOuts / 2 : kRowsOuts);
  const uint32_t rounds = (a.outs + round_outs - 1) / round_outs;
  grid_dependency_wait();
  if (args.place_rounds > 0) {
    const uint32_t begin = blockIdx.x * args.place_rounds;
    if (blockIdx.y < routed)
      multiply_rows<E, kGroups, kGated>(args, shared, static_cast<uint32_t>(a.ids[blockIdx.y]),
                                        {begin, min(begin + args.place_rounds, rounds)});
    return;
  }
  const RowsShares shares{shared.shares};
  shares.fill(a, routed, args.rows_max);
  const uint64_t all = uint64_t{shares.before[a.num_experts]} * rounds;
  const uint32_t begin = static_cast<uint32_t>(all * blockIdx.x / gridDim.x),
                 end = static_cast<uint32_t>(all * (blockIdx.x + 1) / gridDim.x);
  if (begin == end) return;
  for (uint32_t expert = shares.expert_of(begin, a.num_experts, rounds); expert < a.num_experts; ++expert) {
    const uint32_t first = shares.before[expert] * rounds, cost = shares.before[expert + 1] - shares.before[expert];
    if (first >= end) break;
    if (cost == 0) continue;
    // Those rounds that begin in this block's share.
    const RowsRange range{begin > first ? (begin - first + cost - 1) / cost : 0,
                          min(rounds, (end - first + cost - 1) / cost)};
    if (range.begin < range.end) multiply_rows<E, kGroups, kGated>(args, shared, expert, range);
  }
}

// ---- down as a whole -----------------------------------------------------------------------------------------------

// A block makes 16 outputs of a row: its warps take the steps of all of the row's experts in turn.
template <Encoding E>
__global__ void __launch_bounds__(kRowsWarpsMax* kWarp, rows_blocks_sm(E))
    experts_joined_kernel(const ExpertArgs args) {
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
  const uint8_t* own_x = shared.x.rows + t * 16;
  float out[2] = {};  // of outputs g and g + 8
  uint32_t ahead = warp, here = warp;
  through_ring<E>(
      shared.ring, num_places > warp ? (num_places - warp + warps - 1) / warps : 0,
      [&](uint8_t* slot) {
        const uint32_t k = ahead / num_steps;
        const SlotPlace from{w_index(k, g), w_index(k, g + 8), w_index(k, lane.lane % kSlotRows)};
        copy_slot<E>(slot, args.gate, args.gate, from, ahead % num_steps, lane);
        ahead += warps;
      },
      [&] {
        const __half* own = static_cast<const __half*>(args.x) + uint64_t{row} * args.per_row * columns;
        shared.x.fill<E>(args.per_row, columns, [&](uint32_t k) { return own + uint64_t{k} * columns; });
        __syncthreads();
      },
      [&](const uint8_t* slot) {
        const uint32_t k = here / num_steps, step = here % num_steps;
        const auto index = [&](uint32_t r) { return E == Encoding::kQ6_K ? w_index(k, r) + step : step; };
        const float* x_sums = reinterpret_cast<const float*>(shared.x.sums + k / 2 * shared.x.num_units) + k % 2;
        float sum[1][4] = {};  // of one row, which all columns have
        multiply_slot<E, 1>(
            slot, index(g), index(g + 8), lane, shared.scales, 1,
            [&](uint32_t, uint32_t u) {
              return *reinterpret_cast<const uint4*>(own_x + k * shared.x.stride +
                                                     (step * kSlotUnits + u) * (kUnit * 2));
            },
            [&](uint32_t, uint32_t u) {
              return float2{x_sums[2 * (step * kSlotUnits + u)], 0};
            },
            sum);
        const float weight = args.weights[row * args.per_row + k];
        out[0] += weight * sum[0][0];
        out[1] += weight * sum[0][2];
        here += warps;
      });
  if (t == 0) {
    sums[warp][g] = kSlotSumFactor<E> * out[0];
    sums[warp][g + 8] = kSlotSumFactor<E> * out[1];
  }
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

uint32_t rows_shared_bytes(const ExpertShape& shape, uint32_t rows, uint32_t warps, uint32_t rounds) {
  const SlotFacts slot = slot_facts(shape.encoding);
  return rows_sizes(slot.bytes, slot.sums_x, shape.columns, rows, warps, rounds).total() + (shape.num_experts + 1) * 4;
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
  // Very few rows leave most blocks idle: more warps for a tile then. Else, and where the order of sums must not depend
  // on the rows, as many for any number of them.
  const bool is_few = !shape.batch_invariant && shape.num_rows <= inputs.tuning.expert_joined_rows_max;
  const uint32_t steps_warp = inputs.tuning.expert_steps_warp / (is_few ? 2 : 1);
  choice->splits = std::min(std::bit_floor(std::max(num_steps / steps_warp, 1u)), warps);
  const uint32_t tile_outs = shape.is_gated ? kRowsOuts / 2 : kRowsOuts, tile_lanes = warps / choice->splits;
  const uint32_t rounds = ceil_div(ceil_div(shape.outs, tile_outs), tile_lanes);
  // Room for what nearly all experts have.
  const double mean = rows_an_expert(shape);
  choice->rows_max = std::min({round_up(static_cast<uint32_t>(mean + 2.5 * std::sqrt(mean)), 2u),
                               round_up(std::max(shape.num_rows, 1u), 2u), experts_rows_max(shape, inputs)});
  const auto fits = [&](uint32_t held, uint32_t blocks_sm) {
    return (rows_shared_bytes(shape, choice->rows_max, warps, held) + kStaticBytes) * blocks_sm <=
           inputs.device.shared_bytes_max;
  };
  // Fewer rounds between sums for another block on a multiprocessor, but not single ones: warps wait for each other.
  uint32_t blocks_sm = std::min(rows_blocks_sm(shape.encoding), inputs.tuning.expert_blocks_sm);
  while (blocks_sm > 1 && !fits(2, blocks_sm)) --blocks_sm;
  choice->rounds = std::min(rounds, inputs.tuning.expert_rounds_max);
  while (choice->rounds > 1 && !fits(choice->rounds, blocks_sm)) --choice->rounds;
  const uint32_t blocks = inputs.device.num_sms * blocks_sm;
  const double experts = expected_distinct_experts(shape.num_experts, shape.per_row, shape.num_rows);
  const uint32_t each = static_cast<uint32_t>(std::ceil(rounds * experts / blocks));
  choice->place_rounds =
      each < inputs.tuning.expert_shared_rounds_min && !choice->is_ordered ? std::min(each, rounds) : 0;
  choice->grid = {blocks};
  if (choice->place_rounds > 0)
    choice->grid = {ceil_div(rounds, choice->place_rounds), std::max(shape.num_rows * shape.per_row, 1u)};
  choice->threads = warps * kWarp;
  choice->shared_bytes = rows_shared_bytes(shape, choice->rows_max, warps, choice->rounds);
}

Status experts_rows(const ExpertChoice& choice, const ExpertArgs& args, const OpContext& at) {
  const RowsArgs rows{args, choice.splits, choice.rounds, choice.rows_max, choice.place_rounds};
  return with_encoding(args.gate.encoding, [&]<Encoding E>() {
    if (choice.is_gated)
      return launch(at, choice, choice.rows_max > 8 ? experts_rows_kernel<E, 2, true> : experts_rows_kernel<E, 1, true>,
                    rows);
    return launch(at, choice, choice.rows_max > 8 ? experts_rows_kernel<E, 2, false> : experts_rows_kernel<E, 1, false>,
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
