// Products of experts for few rows each: gate, other half and activation to f16, or down, each product with its weight
// to f32 partial products of the routed rows. x f32 (gate) or f16 (down), weights f16 or quantised.
//
// Bound by reading the weights of the distinct experts once. A block has one expert, all of its rows (up to 8 or 32 at
// a time; more read the weights again) and some tiles of 16 rows of W: 16 outputs, or the gates and other halves of 8.
// A tile's columns are shared by `splits` of the 8 warps in steps of 128; each lane loads 16-byte words of two rows of
// W straight into registers, several steps ahead, across tiles. W, decoded to f16, is the 16x16 operand of the matrix
// units, eight rows of x the 16x8 one, from the L1. Sums in f32; those of a tile's warps are added in order of warps.
//
// The experts of a step: with fewer routed rows than experts a block has the place of a routed row, and those of rows
// whose expert an earlier row has leave; else the place of an expert. Each block looks through the ids for its rows, or
// takes them from the order of many (experts_order.cu).
#include <algorithm>
#include <bit>

#include "backends/cuda/activation.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/experts_rows.cuh"
#include "backends/cuda/ops/matmul.h"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kRowsWarps = 8, kRowsThreads = kRowsWarps * kWarp;
constexpr uint32_t kRowsOuts = 16;

// Steps in flight, of two rows each. Of 2 the compiler makes an array in memory.
template <Encoding E, uint32_t kBlocks>
constexpr uint32_t kRowsAhead = kBlocks > 1 || E == Encoding::kF16 || Fragment<E>::kBased ||
                                        sizeof(Fragment<E>) > sizeof(uint4) + 16
                                    ? 3
                                    : 4;
template <Encoding E, uint32_t kBlocks>
constexpr uint32_t kRowsBlocksSm = kBlocks > 1 || E == Encoding::kF16 ? 1 : 2;

struct RowsArgs {
  ExpertArgs experts;
  uint32_t splits, tiles;
  uint32_t by_row;  // blocks have the place of a routed row
};

// Where a warp is: step `step` of tile `tile` of the matrix.
struct RowsPlace {
  uint32_t tile, step;
};

template <Encoding E, uint32_t kBlocks, bool kGated>
__global__ void __launch_bounds__(kRowsThreads, kRowsBlocksSm<E, kBlocks>) experts_rows_kernel(const RowsArgs args) {
  using X = std::conditional_t<kGated, float, __half>;
  constexpr uint32_t kRows = kBlocks * 8, kSums = kBlocks * 4, kAhead = kRowsAhead<E, kBlocks>;
  constexpr uint32_t kTileOuts = kGated ? kRowsOuts / 2 : kRowsOuts;
  __shared__ uint32_t rows[kRows], counts[kRowsWarps];
  __shared__ float sums[kRowsWarps][kSums][kWarp];
  const ExpertArgs& a = args.experts;
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const uint32_t routed = live_rows(a) * a.per_row;
  grid_dependency_wait();
  if (args.by_row && blockIdx.y >= routed) return;
  const uint32_t expert = args.by_row ? static_cast<uint32_t>(a.ids[blockIdx.y]) : blockIdx.y;
  const uint32_t first_row = a.order ? a.offsets[expert] : 0, columns = a.gate.columns;
  const uint32_t num_steps = (columns + kStep - 1) / kStep, num_tiles = (a.outs + kTileOuts - 1) / kTileOuts;
  const uint32_t lanes_of_tiles = kRowsWarps / args.splits, part = warp % args.splits;
  const uint32_t tile_first = blockIdx.x * args.tiles * lanes_of_tiles + warp / args.splits;

  // A tile past the end reads the last output again; its sums are not stored.
  const auto upper_row = [&](uint32_t tile) {
    return uint64_t{expert} * a.stride + min(tile * kTileOuts + g, a.outs - 1);
  };
  const auto lower_row = [&](uint32_t tile) {
    return kGated ? upper_row(tile) : uint64_t{expert} * a.stride + min(tile * kTileOuts + g + 8, a.outs - 1);
  };
  Fragment<E> upper[kAhead], lower[kAhead];
  const auto load = [&](uint32_t d, const RowsPlace& place) {
    upper[d].load(a.gate, upper_row(place.tile), place.step, t);
    lower[d].load(kGated ? a.up : a.gate, lower_row(place.tile), place.step, t);
  };
  // A warp's steps of all of its tiles, one after the other. Shares differ by one step at most.
  const uint32_t share = (num_steps - part + args.splits - 1) / args.splits;
  const uint32_t num_places =
      num_tiles > tile_first ? min(args.tiles, (num_tiles - tile_first + lanes_of_tiles - 1) / lanes_of_tiles) * share
                             : 0;
  const auto next = [&](RowsPlace* place) {
    place->step += args.splits;
    if (place->step < num_steps) return;
    place->step = part;
    place->tile += lanes_of_tiles;
  };

  uint32_t total = 1;
  for (uint32_t skip = 0; skip < total; skip += kRows) {
    if (a.order) {
      total = a.offsets[expert + 1] - first_row;
      if (total == 0) return;
      __syncthreads();  // the rows before have been read
      if (threadIdx.x < kRows && skip + threadIdx.x < total)
        rows[threadIdx.x] = a.order[first_row + skip + threadIdx.x];
      __syncthreads();
    } else {
      total = find_rows<kRowsWarps>(a.ids, routed, expert, skip, kRows, rows, counts);
      if (total == 0) return;
      if (args.by_row && skip == 0 && rows[0] != blockIdx.y) return;  // the block of an earlier row has them
    }
    const uint32_t num_rows = min(total - skip, kRows);
    const X* x[kBlocks];  // of row g of each eight; null: there is none
#pragma unroll
    for (uint32_t b = 0; b < kBlocks; ++b) {
      const uint32_t i = b * 8 + g;
      x[b] = i < num_rows ? static_cast<const X*>(a.x) + uint64_t{kGated ? rows[i] / a.per_row : rows[i]} * columns
                          : nullptr;
    }
    RowsPlace ahead{tile_first, part}, here = ahead;
#pragma unroll
    for (uint32_t d = 0; d < kAhead; ++d) {
      if (d < num_places) {
        load(d, ahead);
        next(&ahead);
      }
    }
    uint32_t n = 0;  // of the warp's places
    for (uint32_t i = 0; i < args.tiles; ++i) {
      // All warps go through as many tiles; those past the end have no steps.
      float sum[kBlocks][4] = {};
      const uint32_t tile = here.tile, end = min(n + share, num_places);
      while (n < end) {
#pragma unroll
        for (uint32_t d = 0; d < kAhead; ++d) {
          // Fragments are used in turn, wherever a tile begins.
          if (n < end && n % kAhead == d) {
#pragma unroll
            for (int u = 0; u < 4; ++u) {
              uint32_t up[4], low[4];
              decode_scaled(upper[d], u, t, here.step, up);
              decode_scaled(lower[d], u, t, here.step, low);
              const uint32_t column = here.step * kStep + static_cast<uint32_t>(u) * kUnit + t * 8;
#pragma unroll
              for (uint32_t b = 0; b < kBlocks; ++b) {
                if (b == 0 || b * 8 < num_rows) {
                  const uint4 words = x[b] ? load_x(x[b], column, columns) : uint4{};
                  mma_16x8x16(sum[b], {up[0], low[0], up[1], low[1]}, {words.x, words.y});
                  mma_16x8x16(sum[b], {up[2], low[2], up[3], low[3]}, {words.z, words.w});
                }
              }
            }
            if (n + kAhead < num_places) {
              load(d, ahead);
              next(&ahead);
            }
            next(&here);
            ++n;
          }
        }
      }
      if (args.splits > 1) {
#pragma unroll
        for (uint32_t b = 0; b < kBlocks; ++b)
#pragma unroll
          for (uint32_t c = 0; c < 4; ++c) sums[warp][b * 4 + c][lane] = sum[b][c];
        __syncthreads();
        if (part == 0) {
          for (uint32_t w = 1; w < args.splits; ++w) {
#pragma unroll
            for (uint32_t b = 0; b < kBlocks; ++b)
#pragma unroll
              for (uint32_t c = 0; c < 4; ++c) sum[b][c] += sums[warp + w][b * 4 + c][lane];
          }
        }
        __syncthreads();
      }
      if (part > 0 || tile >= num_tiles) continue;
        // A lane has, of rows 2t and 2t + 1 of each eight, output g of the upper eight (or the gate), and of the lower
        // eight (or the other half).
#pragma unroll
      for (uint32_t b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (uint32_t j = 0; j < 2; ++j) {
          const uint32_t r = b * 8 + 2 * t + j;
          if (r >= num_rows) continue;
          const uint32_t k = rows[r];
          if constexpr (kGated) {
            const uint32_t out = tile * kTileOuts + g;
            if (out >= a.outs) continue;
            const uint64_t w_row = uint64_t{expert} * a.stride + out;
            const float gate = sum[b][j] + (a.gate_bias ? a.gate_bias[w_row] : 0.0f);
            const float other = sum[b][2 + j] + (a.up_bias ? a.up_bias[w_row] : 0.0f);
            static_cast<__half*>(a.out)[uint64_t{k} * a.outs + out] = __float2half_rn(gated(a.activation, gate, other));
          } else {
            const float weight = a.weights[k];
#pragma unroll
            for (uint32_t half = 0; half < 2; ++half) {
              const uint32_t out = tile * kTileOuts + half * 8 + g;
              if (out >= a.outs) continue;
              const float bias = a.gate_bias ? a.gate_bias[uint64_t{expert} * a.stride + out] : 0.0f;
              static_cast<float*>(a.out)[uint64_t{k} * a.outs + out] = weight * (sum[b][half * 2 + j] + bias);
            }
          }
        }
      }
    }
  }
}

// ---- down as a whole -----------------------------------------------------------------------------------------------

// A block makes 16 outputs of a row: its warps take the steps of all of the row's experts in turn.
template <Encoding E>
__global__ void __launch_bounds__(kRowsThreads, kRowsBlocksSm<E, 1>) experts_joined_kernel(const ExpertArgs args) {
  constexpr uint32_t kAhead = kRowsAhead<E, 1>;
  __shared__ float sums[kRowsWarps][kRowsOuts];
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const uint32_t columns = args.gate.columns, num_steps = (columns + kStep - 1) / kStep;
  const uint32_t out_first = blockIdx.x * kRowsOuts, row = blockIdx.y, num_places = args.per_row * num_steps;
  const uint32_t live = live_rows(args);
  grid_dependency_wait();
  if (row >= live) return;
  const int32_t* ids = args.ids + row * args.per_row;
  Fragment<E> upper[kAhead], lower[kAhead];
  const auto load = [&](uint32_t d, uint32_t place) {
    const uint64_t first = uint64_t{static_cast<uint32_t>(ids[place / num_steps])} * args.stride;
    upper[d].load(args.gate, first + min(out_first + g, args.outs - 1), place % num_steps, t);
    lower[d].load(args.gate, first + min(out_first + g + 8, args.outs - 1), place % num_steps, t);
  };
#pragma unroll
  for (uint32_t d = 0; d < kAhead; ++d) {
    const uint32_t place = warp + d * kRowsWarps;
    if (place < num_places) load(d, place);
  }
  float sum[2] = {};  // of outputs g and g + 8, in lanes with t = 0
  for (uint32_t first = warp; first < num_places; first += kAhead * kRowsWarps) {
#pragma unroll
    for (uint32_t d = 0; d < kAhead; ++d) {
      const uint32_t place = first + d * kRowsWarps, step = place % num_steps;
      if (place >= num_places) break;
      const uint32_t k = row * args.per_row + place / num_steps;
      const __half* x = static_cast<const __half*>(args.x) + uint64_t{k} * columns;
      float part[4] = {};
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        uint32_t up[4], low[4];
        decode_scaled(upper[d], u, t, step, up);
        decode_scaled(lower[d], u, t, step, low);
        const uint4 words =
            g == 0 ? load_x(x, step * kStep + static_cast<uint32_t>(u) * kUnit + t * 8, columns) : uint4{};
        mma_16x8x16(part, {up[0], low[0], up[1], low[1]}, {words.x, words.y});
        mma_16x8x16(part, {up[2], low[2], up[3], low[3]}, {words.z, words.w});
      }
      const float weight = args.weights[k];
      sum[0] += weight * part[0];
      sum[1] += weight * part[2];
      const uint32_t next = place + kAhead * kRowsWarps;
      if (next < num_places) load(d, next);
    }
  }
  if (t == 0) sums[warp][g] = sum[0], sums[warp][g + 8] = sum[1];
  __syncthreads();
  const uint32_t out = out_first + threadIdx.x;
  if (threadIdx.x >= kRowsOuts || out >= args.outs) return;
  float total = 0;
#pragma unroll
  for (uint32_t w = 0; w < kRowsWarps; ++w) total += sums[w][threadIdx.x];
  if (args.gate_bias)
    for (uint32_t k = 0; k < args.per_row; ++k)
      total += args.weights[row * args.per_row + k] *
               args.gate_bias[uint64_t{static_cast<uint32_t>(ids[k])} * args.stride + out];
  static_cast<float*>(args.out)[uint64_t{row} * args.outs + out] = total;
}

}  // namespace

void lay_out_experts_rows(const ExpertShape& shape, const CompileInputs& inputs, ExpertChoice* choice) {
  const uint32_t num_steps = ceil_div(shape.columns, kStep);
  // By the shape of the weights alone: the order of a row's sums.
  choice->splits = std::min(std::bit_floor(std::max(num_steps / inputs.tuning.expert_steps_warp, 1u)), kRowsWarps);
  const uint32_t tile_outs = shape.is_gated ? kRowsOuts / 2 : kRowsOuts, tile_lanes = kRowsWarps / choice->splits;
  const uint32_t rounds = ceil_div(ceil_div(shape.outs, tile_outs), tile_lanes);
  const uint32_t routed = shape.num_rows * shape.per_row,
                 places = choice->is_ordered ? shape.num_experts : std::min(routed, shape.num_experts);
  // So that all blocks that are likely to have work start at once, or each has some tiles.
  const double experts = expected_distinct_experts(shape.num_experts, shape.per_row, shape.num_rows);
  const double blocks = inputs.device.num_sms * inputs.tuning.expert_blocks_sm;
  choice->tiles = std::clamp(static_cast<uint32_t>(std::ceil(rounds * experts / blocks)), 1u,
                             std::min(rounds, inputs.tuning.expert_tiles_max));
  choice->grid = {ceil_div(rounds, choice->tiles), std::max(places, 1u)};
  choice->threads = kRowsThreads;
}

Status experts_rows(const ExpertChoice& choice, const ExpertArgs& args, const OpContext& at) {
  const RowsArgs rows{args, choice.splits, choice.tiles, choice.grid.y < args.num_experts};
  return with_encoding(args.gate.encoding, [&]<Encoding E>() {
    if (choice.is_gated)
      return launch(at, choice,
                    choice.row_blocks > 1 ? experts_rows_kernel<E, 4, true> : experts_rows_kernel<E, 1, true>, rows);
    return launch(at, choice,
                  choice.row_blocks > 1 ? experts_rows_kernel<E, 4, false> : experts_rows_kernel<E, 1, false>, rows);
  });
}

void lay_out_experts_joined(const ExpertShape& shape, ExpertChoice* choice) {
  choice->grid = {ceil_div(shape.outs, kRowsOuts), shape.num_rows};
  choice->threads = kRowsThreads;
}

Status experts_joined(const ExpertChoice& choice, const ExpertArgs& args, const OpContext& at) {
  return with_encoding(args.gate.encoding,
                       [&]<Encoding E>() { return launch(at, choice, experts_joined_kernel<E>, args); });
}

}  // namespace llmrt::cuda
