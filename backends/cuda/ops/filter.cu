// filter: which tokens may be drawn (ops.h), as a cutoff in the order "larger logit first, then lower id".
//
// Two kernels. filter_scan reads each row once, in parts: the best token, the sum of exp(logit / temperature) (f32 over
// four tokens, f64 beyond), and, where the row filters, a histogram; for top-n-sigma also the sums of logits and of
// their squares (f64). filter_select, a block a row, merges the parts. Rows that keep everything or the best alone are
// done then. Else it gathers the best tokens (at most kCandidates, down to a bin's edge), sorts them and walks them:
// the second and last pass if the kept set ends among them. If it does not, radix_select finds the cutoff exactly,
// wherever it is. Sums of the sorted walk are f64; masses of the radix selection are integers, so they do not depend on
// an order. Top-n-sigma is a top-k whose k is counted: among the candidates, or in one more pass when they all lie
// above its edge.
//
// A row with a mask (places.cuh) is read as if it had no other tokens.
#include <cfloat>

#include "backends/cuda/choose.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/candidates.cuh"
#include "backends/cuda/ops/radix_select.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kScanThreads = 512;
constexpr uint32_t kNone = 0xffffffffu;  // "more than there are candidates"

// What a part of a row holds; counts leave out -inf.
struct PartStats {
  Rank best;
  double sum;  // of exp((logit - best) / temperature)
  uint32_t count;
  uint32_t broken;               // NaN or +inf is there
  double logit_sum, square_sum;  // for top-n-sigma
};

struct FilterArgs {
  SampleArgs sample;
  uint32_t num_parts;
  PartStats* parts;      // [R, num_parts]
  uint32_t* histograms;  // [R, num_parts, kBins]
  FilterResult* kept;    // [R]
};

__device__ bool filters(const RowSampling& s) {
  return s.temperature > 0 && (s.top_k > 0 || s.top_p < 1 || s.min_p > 0 || s.top_n_sigma > 0);
}

__global__ void __launch_bounds__(kScanThreads, 2) filter_scan_kernel(FilterArgs args) {
  __shared__ uint32_t histogram[kBins];
  __shared__ Rank rank_scratch[kScanThreads / kWarp];
  __shared__ double sum_scratch[kScanThreads / kWarp];
  __shared__ uint32_t count_scratch[kScanThreads / kWarp];
  const uint32_t r = blockIdx.y, part = blockIdx.x;
  SampledRow row;
  if (!wait_with_row(args.sample, r, &row)) return;
  const bool wants_histogram = filters(row.sampling), is_greedy = row.sampling.temperature == 0;
  const bool wants_spread = wants_histogram && row.sampling.top_n_sigma > 0;
  if (wants_histogram) {
    for (uint32_t i = threadIdx.x; i < kBins; i += kScanThreads) histogram[i] = 0;
    __syncthreads();
  }
  const float factor = kLog2E / row.sampling.temperature;
  float best_logit = -INFINITY, base = -FLT_MAX;  // base: what the sum's exponents are relative to
  uint32_t best_place = 0, count = 0;
  double sum = 0, logit_sum = 0, square_sum = 0;
  bool broken = false;
  for_quads<kScanThreads>(row.places, {row.places, part, args.num_parts}, [&](float4 four, uint32_t quad, auto) {
    const float logits[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (uint32_t c = 0; c < 4; ++c) {
      const float l = logits[c];
      broken |= !(l < INFINITY);
      count += l > -INFINITY;
      if (l > best_logit) {
        best_logit = l;
        best_place = 4 * quad + c;
      }
      if (wants_histogram && l > -INFINITY) atomicAdd(&histogram[bin_of(l)], 1u);
    }
    if (is_greedy) return;
    if (best_logit > base) {
      sum *= static_cast<double>(exp2_fast((base - best_logit) * factor));
      base = best_logit;
    }
    float own = 0;
#pragma unroll
    for (const float l : logits) own += exp2_fast((l - base) * factor);
    sum += static_cast<double>(own);
    if (!wants_spread) return;
#pragma unroll
    for (const float l : logits) {
      const double number = l > -INFINITY ? static_cast<double>(l) : 0.0;
      logit_sum += number;
      square_sum += number * number;
    }
  });
  const int any_broken = __syncthreads_or(broken);
  const Rank best =
      block_reduce(count ? rank_of(best_logit, row.places.token_at(best_place)) : 0, MaxOf(), rank_scratch);
  if (count) sum *= static_cast<double>(exp2_fast((base - logit_of(best)) * factor));
  sum = block_reduce(sum, SumOf(), sum_scratch);
  count = block_reduce(count, SumOf(), count_scratch);
  if (wants_spread) {
    logit_sum = block_reduce(logit_sum, SumOf(), sum_scratch);
    square_sum = block_reduce(square_sum, SumOf(), sum_scratch);
  }
  const uint64_t at = uint64_t{r} * args.num_parts + part;
  if (threadIdx.x == 0) args.parts[at] = {best, sum, count, static_cast<uint32_t>(any_broken), logit_sum, square_sum};
  if (wants_histogram)  // complete since the barriers above
    for (uint32_t i = threadIdx.x; i < kBins; i += kScanThreads) args.histograms[at * kBins + i] = histogram[i];
}

// The parts of a row as one, in every thread.
__device__ PartStats merge_parts(const FilterArgs& args, uint32_t r, const RowSampling& s) {
  const uint32_t lane = threadIdx.x % kWarp;
  PartStats own{};
  if (lane < args.num_parts) own = args.parts[uint64_t{r} * args.num_parts + lane];
  PartStats all{warp_reduce(own.best, MaxOf()), 0, warp_reduce(own.count, SumOf()), warp_reduce(own.broken, MaxOf())};
  if (s.temperature == 0 || all.count == 0) return all;
  const Softener soften(logit_of(all.best), s.temperature);
  all.sum = warp_reduce(own.count ? own.sum * static_cast<double>(soften(logit_of(own.best))) : 0.0, SumOf());
  if (s.top_n_sigma > 0) {
    all.logit_sum = warp_reduce(own.logit_sum, SumOf());
    all.square_sum = warp_reduce(own.square_sum, SumOf());
  }
  return all;
}

// How many tokens top-n-sigma keeps: of the candidates, or, where it keeps all of those, of the row.
__device__ uint32_t count_within_sigma(const SampledRow& row, const PartStats& all, const Rank* ranks,
                                       uint32_t num_candidates) {
  __shared__ uint32_t scratch[kRankThreads / kWarp];
  const double mean = all.logit_sum / all.count, variance = fmax(all.square_sum / all.count - mean * mean, 0.0);
  const double least = static_cast<double>(logit_of(all.best)) - row.sampling.top_n_sigma * sqrt(variance);
  const auto count_of = [&](uint32_t num, auto logit_at) {
    uint32_t count = 0;
    for (uint32_t i = threadIdx.x; i < num; i += kRankThreads) {
      const float l = logit_at(i);
      count += l > -INFINITY && static_cast<double>(l) >= least;
    }
    return block_reduce(count, SumOf(), scratch);
  };
  const uint32_t count = count_of(num_candidates, [&](uint32_t i) { return logit_of(ranks[i]); });
  if (count < num_candidates || num_candidates == all.count) return count;
  return count_of(row.places.count(), [&](uint32_t i) { return row.places.logit_at(i); });
}

// How many of the best tokens each rule keeps, if that shows among the candidates.
__device__ uint32_t walk(const RowSampling& s, const PartStats& all, const Rank* ranks, uint32_t num_candidates,
                         double* kept_sum) {
  __shared__ double sums[kCandidates];
  __shared__ double scratch[kRankThreads / kWarp];
  __shared__ uint32_t top_p_count, min_p_count;
  const Softener soften(logit_of(all.best), s.temperature);
  const auto weight = [&](uint32_t i) {
    return i < num_candidates ? static_cast<double>(soften(logit_of(ranks[i]))) : 0.0;
  };
  const uint32_t first = threadIdx.x * 2;
  const double a = weight(first), b = weight(first + 1);
  const double through = block_prefix_sum(a + b, scratch);
  sums[first] = through - b;
  sums[first + 1] = through;
  if (threadIdx.x == 0) top_p_count = min_p_count = kNone;
  __syncthreads();

  const bool complete = num_candidates == all.count;
  const bool has_k = s.top_k > 0 && s.top_k < all.count;
  uint32_t limit = has_k ? s.top_k : complete ? all.count : kNone;
  if (limit > num_candidates) limit = kNone;
  const bool has_p = s.top_p < 1;
  const bool knows_total = limit != kNone || !has_k;
  if (has_p && !knows_total) return kNone;
  const double target = static_cast<double>(s.top_p) * (limit != kNone ? sums[limit - 1] : all.sum);
  const uint32_t searched = min(limit, num_candidates);
  const double min_log = s.min_p > 0 ? log(static_cast<double>(s.min_p)) : 0;
  for (uint32_t i = threadIdx.x; i < searched; i += kRankThreads) {
    if (has_p && sums[i] >= target) atomicMin(&top_p_count, i + 1);
    if (s.min_p > 0) {
      const double below = (static_cast<double>(logit_of(ranks[i])) - static_cast<double>(logit_of(all.best))) /
                           static_cast<double>(s.temperature);
      if (below < min_log) atomicMin(&min_p_count, max(i, 1u));
    }
  }
  __syncthreads();
  const uint32_t count = min(limit, min(top_p_count, min_p_count));
  if (count != kNone) *kept_sum = sums[count - 1];
  return count;
}

__global__ void __launch_bounds__(kRankThreads) filter_select_kernel(FilterArgs args) {
  const uint32_t r = blockIdx.x;
  SampledRow row;
  if (!wait_with_row(args.sample, r, &row)) return;
  RowSampling& s = row.sampling;
  const PartStats all = merge_parts(args, r, s);
  FilterResult result{};
  if (all.broken) {
    result.flags = kResultNotFinite;
  } else if (all.count == 0) {
    // Masked away, or nothing finite to begin with?
    int finite = 0;
    for (uint32_t v = threadIdx.x; v < args.sample.vocab_size; v += kRankThreads) finite |= isfinite(row.raw[v]);
    result.flags = __syncthreads_or(finite) ? kResultEmptySupport : kResultNotFinite;
  } else {
    result.max_logit = logit_of(all.best);
    Rank last = all.best;
    result.support = 1;
    if (s.temperature > 0) {
      double sum = all.sum;
      last = rank_of(-FLT_MAX, INT32_MAX);  // all but -inf
      result.support = all.count;
      if (filters(s)) {
        Rank* ranks = reinterpret_cast<Rank*>(dynamic_shared());
        uint32_t bin, count = kNone;
        const uint32_t num_candidates =
            choose_bin(args.histograms + uint64_t{r} * args.num_parts * kBins, args.num_parts, &bin);
        // More than the candidates are wanted for certain: no use in gathering them.
        const bool hopeless = s.top_k > num_candidates && s.top_k < all.count && s.min_p <= 0 && s.top_n_sigma <= 0;
        const bool has_candidates = num_candidates > 0 && !hopeless;
        if (has_candidates) gather(row.places, bin, ranks);
        if (s.top_n_sigma > 0) {
          const uint32_t within = count_within_sigma(row, all, ranks, num_candidates);
          s.top_k = s.top_k > 0 ? min(s.top_k, within) : within;
        }
        if (has_candidates) {
          count = walk(s, all, ranks, num_candidates, &sum);
          if (count != kNone) last = ranks[count - 1];
        }
        if (count == kNone) count = radix_select(row, result.max_logit, all.count, &last, &sum);
        result.support = count;
      }
      result.log_sum = static_cast<float>(log(sum));
    }
    result.cutoff = logit_of(last);
    result.cutoff_id = static_cast<int32_t>(id_of(last));
  }
  if (threadIdx.x == 0) args.kept[r] = result;
}

constexpr uint64_t kPartBytes = sizeof(PartStats) + kBins * sizeof(uint32_t);  // of the workspace, a part of a row

}  // namespace

uint64_t filter_workspace_bytes(uint32_t rows_max, uint32_t num_sms) {
  const uint64_t stats_max = std::max(rows_max, kTuning.sampling_blocks_sm * num_sms);  // of num_parts
  return stats_max * kPartBytes;
}

Status choose(const Filter& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  const uint32_t num_rows = list.rows_of(op.logits);
  const uint32_t parts = list.batch_invariant ? 1 : num_parts(num_rows, inputs);  // each has a sum of its own
  const uint64_t num_stats = uint64_t{num_rows} * parts, needed = num_stats * kPartBytes;
  if (needed > inputs.workspace_bytes)
    return make_error(ErrorCode::kOutOfMemory, "filter: {} bytes of workspace, there are {}", needed,
                      inputs.workspace_bytes);
  const auto args_of = [op, parts, num_stats](const OpContext& at) {
    return FilterArgs{{at.sample_inputs, at.rows, at.tensor<float>(op.logits), at.tensor<float>(op.processed),
                       at.desc(op.logits).columns},
                      parts,
                      reinterpret_cast<PartStats*>(at.workspace.data),
                      reinterpret_cast<uint32_t*>(at.workspace.data + num_stats * sizeof(PartStats)),
                      at.tensor<FilterResult>(op.kept)};
  };
  KernelChoice scan{.kernel = "filter_scan", .grid = {parts, num_rows}, .threads = kScanThreads};
  scan.workspace_bytes = needed;
  add_launch(out, scan, [args_of](const KernelChoice& choice, const OpContext& at) {
    return launch(at, choice, filter_scan_kernel, args_of(at));
  });
  KernelChoice select{.kernel = "filter_select", .grid = {num_rows}, .threads = kRankThreads};
  select.shared_bytes = std::max<uint32_t>(kCandidates * sizeof(Rank), kRadixSharedBytes);
  add_launch(out, select, [args_of](const KernelChoice& choice, const OpContext& at) {
    return launch(at, choice, filter_select_kernel, args_of(at));
  });
  return {};
}

}  // namespace llmrt::cuda
