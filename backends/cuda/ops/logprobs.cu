// logprobs: for rows that ask, log-softmax of the raw logits: of the row's token, and of the best kLogprobsMax tokens
// (ties by lower id), or of the best of those that Filter kept. One block a row, two passes: maximum, sum and a
// histogram (for what was kept a histogram of its own, a pass more); then the candidates, sorted. Where
// more logits than kCandidates share the histogram's bin (masked or nearly equal ones), the best are taken one by one,
// a pass each. Sums in f64.
#include "backends/cuda/choose.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/rank.cuh"
#include "backends/cuda/sampling.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kCandidates = 2048;

struct Args {
  SampleArgs sample;
  const FilterResult* kept;  // [R]
  SampleResult* results;
  LogprobRow* rows;
};

// The lowest bin to gather so that at least `wanted` logits are; how many those are.
__device__ uint32_t choose_bin(const uint32_t* histogram, uint32_t wanted, uint32_t* bin) {
  constexpr uint32_t kBinsThread = kBins / kRankThreads;
  __shared__ uint32_t scratch[kRankThreads / kWarp];
  __shared__ uint32_t found, found_count;
  uint32_t counts[kBinsThread], total = 0;
  for (uint32_t i = 0; i < kBinsThread; ++i)
    total += counts[i] = histogram[kBins - 1 - (threadIdx.x * kBinsThread + i)];
  uint32_t above = block_prefix_sum(total, scratch) - total;
  for (uint32_t i = 0; i < kBinsThread; ++i) {
    if (above < wanted && above + counts[i] >= wanted) {
      found = kBins - 1 - (threadIdx.x * kBinsThread + i);
      found_count = above + counts[i];
    }
    above += counts[i];
  }
  __syncthreads();
  *bin = found;
  return found_count;
}

// The best of the ranks below `below`.
__device__ Rank next_best(const Places& places, Rank below) {
  __shared__ Rank scratch[kRankThreads / kWarp];
  Rank best = 0;
  for_places<kRankThreads>(places, [&](float l, uint32_t token) {
    const Rank rank = rank_of(l, token);
    if (rank < below && rank > best) best = rank;
  });
  best = block_reduce(best, MaxOf(), scratch);
  __syncthreads();
  return best;
}

__global__ void __launch_bounds__(kRankThreads, 2) logprobs_kernel(Args args) {
  __shared__ uint32_t histogram[kBins];
  __shared__ Rank ranks[kCandidates];
  __shared__ float max_scratch[kRankThreads / kWarp];
  __shared__ double sum_scratch[kRankThreads / kWarp];
  __shared__ uint32_t used;
  const uint32_t r = blockIdx.x, vocab_size = args.sample.vocab_size;
  SampledRow row;
  if (!wait_with_row(args.sample, r, &row)) return;
  if (!(row.record.flags & kSampleLogprobs)) return;
  const bool of_kept = row.record.flags & kSampleProcessed;
  Places places{row.raw, vocab_size};
  LogprobRow& out = args.rows[r];
  for (uint32_t i = threadIdx.x; i < kBins; i += kRankThreads) histogram[i] = 0;
  if (threadIdx.x < kLogprobsMax) out.entries[threadIdx.x] = {-1, 0.0f};
  if (threadIdx.x == 0) used = 0;
  __syncthreads();

  float max = -INFINITY;
  double sum = 0;
  int broken = 0;
#pragma unroll 4
  for (uint32_t v = threadIdx.x; v < vocab_size; v += kRankThreads) {
    const float l = row.raw[v];
    broken |= !(l < INFINITY);
    atomicAdd(&histogram[l > -INFINITY ? bin_of(l) : 0], 1u);
    if (l > max) {
      sum *= static_cast<double>(expf(max - l));
      max = l;
    }
    if (l > -INFINITY) sum += static_cast<double>(expf(l - max));
  }
  const float row_max = block_reduce(max, MaxOf(), max_scratch);
  if (__syncthreads_or(broken) || row_max == -INFINITY) {
    // Filter has said so too, unless the row's mask denies what is broken; there are no raw log-probabilities then.
    if (threadIdx.x == 0 && args.results[r].flags == 0) {
      args.results[r].flags = kResultNotFinite;
      args.results[r].token = -1;
    }
    return;
  }
  if (max > -INFINITY) sum *= static_cast<double>(expf(max - row_max));
  const double total = static_cast<double>(row_max) + log(block_reduce(sum, SumOf(), sum_scratch));
  if (threadIdx.x == 0) {
    const int32_t token = args.results[r].token;
    if (static_cast<uint32_t>(token) < vocab_size)
      args.results[r].logprob = static_cast<float>(static_cast<double>(row.raw[token]) - total);
  }

  uint32_t wanted = min(kLogprobsMax, vocab_size);
  FilterResult kept{};
  if (of_kept) {
    kept = args.kept[r];
    if (kept.flags != 0) return;
    wanted = min(kLogprobsMax, kept.support);
    places = places_of(args.sample.inputs, row.record, row.logits, vocab_size);
    for (uint32_t i = threadIdx.x; i < kBins; i += kRankThreads) histogram[i] = 0;
    __syncthreads();
    for_places<kRankThreads>(places,
                             [&](float l, uint32_t) { atomicAdd(&histogram[l > -INFINITY ? bin_of(l) : 0], 1u); });
    __syncthreads();
  }
  uint32_t bin;
  const uint32_t num_candidates = choose_bin(histogram, wanted, &bin);
  if (num_candidates <= kCandidates) {
    for (uint32_t i = threadIdx.x; i < kCandidates; i += kRankThreads) ranks[i] = 0;
    __syncthreads();
    for_places<kRankThreads>(places, [&](float l, uint32_t token) {
      if ((l > -INFINITY ? bin_of(l) : 0) >= bin) ranks[atomicAdd(&used, 1u)] = rank_of(l, token);
    });
    sort_ranks(ranks, kCandidates);
  } else {
    Rank below = ~Rank{0};
    for (uint32_t i = 0; i < wanted; ++i) {
      below = next_best(places, below);
      if (threadIdx.x == 0) ranks[i] = below;
    }
    __syncthreads();
  }
  if (threadIdx.x < wanted) {
    const Rank rank = ranks[threadIdx.x];
    const float logit = logit_of(rank), temperature = row.sampling.temperature;
    const double logprob = !of_kept          ? static_cast<double>(logit) - total
                           : temperature > 0 ? scaled_logprob(logit, temperature, kept)
                                             : 0.0;
    out.entries[threadIdx.x] = {static_cast<int32_t>(id_of(rank)), static_cast<float>(logprob)};
  }
}

}  // namespace

Status choose(const Logprobs& op, const OpList& list, const CompileInputs&, Launches* out) {
  KernelChoice choice{.kernel = "logprobs", .grid = {list.rows_of(op.logits)}, .threads = kRankThreads};
  add_launch(out, choice, [op](const KernelChoice& c, const OpContext& at) {
    const Args args{{at.sample_inputs, at.rows, at.tensor<float>(op.logits), at.tensor<float>(op.processed),
                     at.desc(op.logits).columns},
                    at.tensor<FilterResult>(op.kept),
                    at.results,
                    at.logprobs};
    return launch(at, c, logprobs_kernel, args);
  });
  return {};
}

}  // namespace llmrt::cuda
