// sample: the winner of logit / temperature + Gumbel noise over the kept set, or the best logit (greedy); scores in
// f64, noise in f32, bit for bit as everywhere (core/sample/gumbel.inc). Rows are cut into parts, a block each; the
// last block of a row merges them in the order of (score, lower id), writes the SampleResult and, where the row really
// samples, its last token and output count.
#include "backends/cuda/gumbel.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/reduce.cuh"
#include "backends/cuda/sampling.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kThreads = 512;

// The best score, its token, and the best of the others.
struct Best {
  double score, second;
  int32_t token;  // -1: none
};

__device__ Best better(const Best& a, const Best& b) {
  const bool left =
      a.score > b.score || (a.score == b.score && static_cast<uint32_t>(a.token) <= static_cast<uint32_t>(b.token));
  const Best& winner = left ? a : b;
  const Best& loser = left ? b : a;
  return {winner.score, winner.second > loser.score ? winner.second : loser.score, winner.token};
}

__device__ Best block_best(Best mine, Best* scratch) {
  for (uint32_t offset = kWarp / 2; offset > 0; offset /= 2) {
    const Best other{__shfl_xor_sync(kFullMask, mine.score, offset), __shfl_xor_sync(kFullMask, mine.second, offset),
                     __shfl_xor_sync(kFullMask, mine.token, offset)};
    mine = better(mine, other);
  }
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = mine;
  __syncthreads();
  Best all = scratch[0];
  for (uint32_t w = 1; w < kThreads / kWarp; ++w) all = better(all, scratch[w]);
  return all;
}

struct Args {
  SampleArgs sample;
  const FilterResult* kept;  // [R]
  uint32_t num_parts;
  Best* parts;         // [R, num_parts]
  uint32_t* counters;  // [R], zero between launches
  SampleResult* results;
};

__device__ bool is_kept(const FilterResult& kept, float logit, int32_t token) {
  return logit > kept.cutoff || (logit == kept.cutoff && token <= kept.cutoff_id);
}

__device__ Best scan(const SampledRow& row, const FilterResult& kept, uint32_t begin, uint32_t end) {
  const RowSampling& s = row.sampling;
  const uint32_t key0 = noise_key(s.seed_lo, s.seed_hi, s.branch, row.record.output_position, 0);
  const uint32_t key1 = noise_key(s.seed_lo, s.seed_hi, s.branch, row.record.output_position, 1);
  const bool is_greedy = s.temperature == 0;
  const double inverse = is_greedy ? 1.0 : 1.0 / static_cast<double>(s.temperature);
  Best best{-INFINITY, -INFINITY, -1};
#pragma unroll 4
  for (uint32_t v = begin + threadIdx.x; v < end; v += kThreads) {
    const float l = row.logits[v];
    if (!(l > -INFINITY) || !(is_greedy || is_kept(kept, l, static_cast<int32_t>(v)))) continue;
    double score = static_cast<double>(l) * inverse;
    if (!is_greedy) score += static_cast<double>(gumbel(noise_hash(key0, key1, v)));
    best = better(best, {score, -INFINITY, static_cast<int32_t>(v)});
  }
  return best;
}

__device__ void write_result(const Args& args, const SampledRow& row, const FilterResult& kept, uint32_t r,
                             const Best& best) {
  const RowSampling& s = row.sampling;
  SampleResult result{};
  result.token = -1;
  result.flags = kept.flags;
  result.support = kept.support;
  if (kept.flags == 0) {
    const bool is_forced = row.record.flags & kSampleForced;
    result.token = is_forced ? row.record.forced_token : best.token;
    result.margin = is_forced ? 0.0f : static_cast<float>(best.score - best.second);
    if (static_cast<uint32_t>(result.token) < args.sample.vocab_size) {
      const float logit = row.logits[result.token];
      if (!is_kept(kept, logit, result.token))
        result.processed_logprob = -INFINITY;
      else if (s.temperature > 0)
        result.processed_logprob = static_cast<float>(static_cast<double>(logit) / static_cast<double>(s.temperature) -
                                                      static_cast<double>(kept.log_sum_exp));
      if (!is_forced) {
        args.sample.rows.last_token[row.record.slot] = result.token;
        if (s.flags & kRowPenalties && static_cast<uint32_t>(s.penalty_slot) < args.sample.rows.penalty_rows_max)
          args.sample.rows.counts[uint64_t{static_cast<uint32_t>(s.penalty_slot)} * args.sample.rows.vocab_size +
                                  static_cast<uint32_t>(result.token)] += 1;
      }
    }
  }
  args.results[r] = result;
}

__global__ void __launch_bounds__(kThreads) sample_kernel(Args args) {
  __shared__ Best scratch[kThreads / kWarp];
  grid_dependency_wait();
  const uint32_t r = blockIdx.y, part = blockIdx.x;
  if (r >= args.sample.inputs[kSmpNumRecords]) return;
  const SampledRow row = sampled_row(args.sample, r);
  const FilterResult kept = args.kept[r];
  Best best{-INFINITY, -INFINITY, -1};
  if (kept.flags == 0 && !(row.record.flags & kSampleForced)) {
    const uint32_t begin = static_cast<uint32_t>(uint64_t{args.sample.vocab_size} * part / args.num_parts);
    const uint32_t end = static_cast<uint32_t>(uint64_t{args.sample.vocab_size} * (part + 1) / args.num_parts);
    best = scan(row, kept, begin, end);
  }
  best = block_best(best, scratch);
  if (threadIdx.x != 0) return;
  args.parts[uint64_t{r} * args.num_parts + part] = best;
  __threadfence();
  if (atomicAdd(&args.counters[r], 1u) != args.num_parts - 1) return;
  args.counters[r] = 0;
  __threadfence();
  const volatile Best* parts = args.parts + uint64_t{r} * args.num_parts;
  best = {-INFINITY, -INFINITY, -1};
  for (uint32_t p = 0; p < args.num_parts; ++p) best = better(best, {parts[p].score, parts[p].second, parts[p].token});
  write_result(args, row, kept, r, best);
}

}  // namespace

Status run(const Sample& op, const OpContext& at) {
  const uint32_t num_rows = at.rows_of(op.logits), parts = num_parts(num_rows, at.num_sms);
  if (uint64_t{num_rows} * parts * sizeof(Best) > at.workspace.bytes || num_rows > at.workspace.num_counters)
    return make_error(ErrorCode::kOutOfMemory, "sample: {} rows in {} parts pass the workspace", num_rows, parts);
  const Args args{{at.sample_inputs, at.rows, at.tensor<float>(op.logits), at.tensor<float>(op.processed),
                   at.desc(op.logits).columns},
                  at.tensor<FilterResult>(op.kept),
                  parts,
                  reinterpret_cast<Best*>(at.workspace.data),
                  at.workspace.counters,
                  at.results};
  return launch(at, "sample", sample_kernel, {dim3(parts, num_rows), kThreads}, args);
}

}  // namespace llmrt::cuda
