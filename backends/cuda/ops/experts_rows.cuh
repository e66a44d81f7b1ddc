// The routed rows of an expert, x as the matrix units take it, and what products become.
#pragma once

#include "backends/cuda/activation.cuh"
#include "backends/cuda/dequant.cuh"
#include "backends/cuda/numbers.cuh"
#include "backends/cuda/ops/experts.h"
#include "backends/cuda/reduce.cuh"

namespace llmrt::cuda {

__device__ inline uint32_t count_bits(uint32_t word) {
  return static_cast<uint32_t>(__popc(word));
}

// How many of the rows are live.
__device__ inline uint32_t live_rows(const ExpertArgs& args) {
  const uint32_t live = *args.live;
  return live > args.row_begin ? min(live - args.row_begin, args.row_count) : 0;
}

// Eight numbers of x from `column` on as four pairs of f16; zeros behind the row's end.
__device__ inline uint4 load_x(const float* row, uint32_t column, uint32_t columns) {
  if (column >= columns) return {};
  const float4 a = *reinterpret_cast<const float4*>(row + column),
               b = *reinterpret_cast<const float4*>(row + column + 4);
  return {half2_bits(__floats2half2_rn(a.x, a.y)), half2_bits(__floats2half2_rn(a.z, a.w)),
          half2_bits(__floats2half2_rn(b.x, b.y)), half2_bits(__floats2half2_rn(b.z, b.w))};
}
__device__ inline uint4 load_x(const __half* row, uint32_t column, uint32_t columns) {
  return column < columns ? *reinterpret_cast<const uint4*>(row + column) : uint4{};
}

// Routed rows of `expert` number [skip, skip + room) to `rows`, by all threads of a block; how many it has in all.
// `rows`, `counts` (a word a warp): shared.
__device__ inline uint32_t find_rows(const int32_t* ids, uint32_t routed, uint32_t expert, uint32_t skip, uint32_t room,
                                     uint32_t* rows, uint32_t* counts) {
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t run = (routed + blockDim.x - 1) / blockDim.x * kWarp;
  const uint32_t begin = min(warp * run, routed), end = min(begin + run, routed);
  const auto those_of = [&](uint32_t i) {
    return __ballot_sync(kFullMask, i + lane < end && static_cast<uint32_t>(ids[i + lane]) == expert);
  };
  uint32_t count = 0;
  for (uint32_t i = begin; i < end; i += kWarp) count += count_bits(those_of(i));
  if (lane == 0) counts[warp] = count;
  __syncthreads();
  uint32_t place = 0, total = 0;
  for (uint32_t w = 0; w < blockDim.x / kWarp; ++w) {
    place += w < warp ? counts[w] : 0;
    total += counts[w];
  }
  if (count > 0) {
    for (uint32_t i = begin; i < end; i += kWarp) {
      const uint32_t mine = those_of(i);
      const uint32_t mine_place = place + count_bits(mine & ((1u << lane) - 1)) - skip;  // wraps below 0
      if ((mine >> lane & 1) && mine_place < room) rows[mine_place] = i + lane;
      place += count_bits(mine);
    }
  }
  __syncthreads();
  return total;
}

// What adapters add to the products of output `out` of routed row k.
__device__ inline void add_terms(const ExpertArgs& args, uint32_t k, uint32_t out, float* gate, float* up) {
  if (!args.term) return;
  const float* at = args.term + uint64_t{k} * 2 * args.outs + out;
  *gate += at[0];
  *up += at[args.outs];
}

// Output `out` of routed row k, of the products of a gate and of its other half. Without another half both are outputs:
// `out` of the first args.outs, and of as many behind them.
template <class Out>
__device__ inline void store_activated(const ExpertArgs& args, uint32_t k, uint32_t out, float gate, float up) {
  Out* const outs = static_cast<Out*>(args.out);
  if (args.activation == Activation::kSquaredRelu) {
    Out* const at = outs + uint64_t{k} * 2 * args.outs + out;
    at[0] = from_float<Out>(squared_relu(gate));
    at[args.outs] = from_float<Out>(squared_relu(up));
  } else {
    outs[uint64_t{k} * args.outs + out] = from_float<Out>(gated(args.activation, gate, up));
  }
}

}  // namespace llmrt::cuda
