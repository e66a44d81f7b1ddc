// The best tokens of a row, down to the edge of a bin of its histograms: chosen, gathered, sorted. A whole block of
// kRankThreads calls each function.
#pragma once

#include "backends/cuda/rank.cuh"
#include "backends/cuda/sampling.cuh"

namespace llmrt::cuda {

inline constexpr uint32_t kCandidates = 2 * kRankThreads;

// `histograms`: of the row's parts. How many tokens lie in the bins from *bin up, for the lowest bin with which they
// are at most kCandidates; 0 when the topmost bin in use has more.
__device__ inline uint32_t choose_bin(const uint32_t* histograms, uint32_t num_parts, uint32_t* bin) {
  constexpr uint32_t kBinsThread = kBins / kRankThreads;
  __shared__ uint32_t scratch[kRankThreads / kWarp];
  __shared__ uint32_t lowest, most;
  if (threadIdx.x == 0) {
    lowest = kBins;
    most = 0;
  }
  uint32_t counts[kBinsThread] = {}, total = 0;  // thread 0 has the topmost bins
  for (uint32_t i = 0; i < kBinsThread; ++i) {
    const uint32_t b = kBins - 1 - (threadIdx.x * kBinsThread + i);
    for (uint32_t p = 0; p < num_parts; ++p) counts[i] += histograms[uint64_t{p} * kBins + b];
    total += counts[i];
  }
  uint32_t above = block_prefix_sum(total, scratch) - total;
  for (uint32_t i = 0; i < kBinsThread; ++i) {
    above += counts[i];
    if (above > kCandidates) break;
    atomicMin(&lowest, kBins - 1 - (threadIdx.x * kBinsThread + i));
    atomicMax(&most, above);
  }
  __syncthreads();
  *bin = lowest;
  return most;
}

// The candidates, best first, in shared memory.
__device__ inline void gather(const Places& places, uint32_t bin, Rank* ranks) {
  __shared__ uint32_t used;
  if (threadIdx.x == 0) used = 0;
  for (uint32_t i = threadIdx.x; i < kCandidates; i += kRankThreads) ranks[i] = 0;
  __syncthreads();
  for_places<kRankThreads>(places, [&](float l, uint32_t token) {
    if (l > -INFINITY && bin_of(l) >= bin) ranks[atomicAdd(&used, 1u)] = rank_of(l, token);
  });
  sort_ranks(ranks, kCandidates);
}

}  // namespace llmrt::cuda
