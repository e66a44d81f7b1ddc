// sample: the winner of logit / temperature + Gumbel noise over the kept set, or the best logit (greedy); scores in
// f64, noise in f32, bit for bit as everywhere (core/sample/gumbel.inc). Rows are cut into parts, a block each; the
// last block of a row merges them in the order of (score, lower id), writes the SampleResult and, where the row really
// samples, its last token and output count.
//
// A score takes some 130 instructions, a bound of it 30. So each thread bounds the scores of all its tokens and
// computes that of the most promising one; the second best of these in the block is at most the second best of its
// part, and only tokens whose bound reaches it are scored as well: hardly ever one.
//
// A token that the row's mask denies (places.cuh) has the logit -inf, which no row keeps.
#include <cfloat>

#include "backends/cuda/arrival.cuh"
#include "backends/cuda/choose.h"
#include "backends/cuda/gumbel.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/reduce.cuh"
#include "backends/cuda/sampling.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kThreads = 512;

// The best score, its token, and the best of the others.
struct Best {
  double score = -INFINITY, second = -INFINITY;
  int32_t token = -1;  // none
};

__device__ Best better(const Best& a, const Best& b) {
  const bool left =
      a.score > b.score || (a.score == b.score && static_cast<uint32_t>(a.token) <= static_cast<uint32_t>(b.token));
  const Best& winner = left ? a : b;
  const Best& loser = left ? b : a;
  return {winner.score, winner.second > loser.score ? winner.second : loser.score, winner.token};
}

__device__ Best warp_best(Best mine) {
  for (uint32_t offset = kWarp / 2; offset > 0; offset /= 2) {
    const Best other{__shfl_xor_sync(kFullMask, mine.score, offset), __shfl_xor_sync(kFullMask, mine.second, offset),
                     __shfl_xor_sync(kFullMask, mine.token, offset)};
    mine = better(mine, other);
  }
  return mine;
}

// Of all threads, in all of them.
__device__ Best block_best(Best mine, Best* scratch) {
  const uint32_t lane = threadIdx.x % kWarp;
  mine = warp_best(mine);
  __syncthreads();
  if (lane == 0) scratch[threadIdx.x / kWarp] = mine;
  __syncthreads();
  return warp_best(lane < kThreads / kWarp ? scratch[lane] : Best{});
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

class Scores {
 public:
  __device__ Scores(const SampledRow& row)
      : is_greedy_(row.sampling.temperature == 0),
        key0_(
            noise_key(row.sampling.seed_lo, row.sampling.seed_hi, row.sampling.branch, row.record.output_position, 0)),
        key1_(
            noise_key(row.sampling.seed_lo, row.sampling.seed_hi, row.sampling.branch, row.record.output_position, 1)),
        inverse_(1.0 / static_cast<double>(row.sampling.temperature)),
        factor_(static_cast<float>(inverse_)) {}

  __device__ double score(float logit, uint32_t token) const {
    if (is_greedy_) return static_cast<double>(logit);
    return static_cast<double>(logit) * inverse_ + static_cast<double>(gumbel(noise_hash(key0_, key1_, token)));
  }
  // At least the score of a finite logit: the noise is -log(-log(1 - w)) <= -log(w), w > hash / 2^32. What rounding
  // takes is far less than what is added for it. What f32 cannot hold has the bound inf.
  __device__ float bound(float logit, uint32_t token) const {
    if (is_greedy_) return logit;
    constexpr float kLn2 = 0.693147f, kLog2To32 = 22.1807098f;
    const float scaled = logit * factor_, hash = __uint2float_rn(noise_hash(key0_, key1_, token));
    const float noise = fmaf(log2_fast(hash), -kLn2, kLog2To32 + 1e-4f);
    return fminf(fmaf(fabsf(scaled), 1e-6f, scaled) + noise, INFINITY);  // INFINITY for NaN too
  }

 private:
  bool is_greedy_;
  uint32_t key0_, key1_;
  double inverse_;
  float factor_;
};

// The best of a part, in every thread of the block.
__device__ Best scan(const SampledRow& row, FilterResult kept, const RowPart& part) {
  __shared__ Best scratch[kThreads / kWarp];
  const Scores scores(row);
  if (row.sampling.temperature == 0) {  // keeps one token, and its margin is over all
    kept.cutoff = -FLT_MAX;
    kept.cutoff_id = INT32_MAX;
  }
  const auto offer = [&](Best* best, float logit, uint32_t token) {
    if (is_kept(kept, logit, static_cast<int32_t>(token)))
      *best = better(*best, {scores.score(logit, token), -INFINITY, static_cast<int32_t>(token)});
  };

  float highest = -INFINITY, second_highest = -INFINITY;  // bounds
  uint32_t promising = 0;
  const Places& places = row.places;
  for_quads<kThreads>(places, part, [&](float4 four, uint32_t quad, auto token_at) {
    const float logits[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (uint32_t c = 0; c < 4; ++c) {
      const uint32_t token = token_at(4 * quad + c);
      float bound = scores.bound(logits[c], token);
      if (logits[c] < kept.cutoff) bound = -INFINITY;
      second_highest = fmaxf(second_highest, fminf(bound, highest));
      if (bound > highest) {
        highest = bound;
        promising = token;
      }
    }
  });
  Best mine;
  if (highest > -INFINITY) offer(&mine, row.logits[promising], promising);
  const Best best = block_best(mine, scratch);

  const float least = __double2float_rd(best.second);
  const bool has_more = second_highest > -INFINITY && second_highest >= least;
  if (!__syncthreads_or(has_more)) return best;
  // Each such thread's tokens, by all lanes of its warp.
  for (uint32_t lanes = __ballot_sync(kFullMask, has_more); lanes != 0; lanes &= lanes - 1) {
    const uint32_t lane = static_cast<uint32_t>(__ffs(static_cast<int>(lanes))) - 1;
    const uint32_t known = __shfl_sync(kFullMask, promising, lane);
    const uint32_t first = part.begin + threadIdx.x / kWarp * kWarp + lane;
    for (uint32_t i = threadIdx.x % kWarp; first + i / 4 * kThreads < part.end; i += kWarp) {
      const uint32_t place = 4 * (first + i / 4 * kThreads) + i % 4;
      if (place >= places.count()) continue;
      const uint32_t token = places.token_at(place);
      if (token == known) continue;
      const float logit = places.logit_at(place);
      if (logit >= kept.cutoff && scores.bound(logit, token) >= least) offer(&mine, logit, token);
    }
  }
  return block_best(mine, scratch);
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
        result.processed_logprob = static_cast<float>(scaled_logprob(logit, s.temperature, kept));
      if (!is_forced && !(row.record.flags & kSampleVerify)) {
        args.sample.rows.last_token[row.record.slot] = result.token;
        if (s.flags & kRowPenalties && static_cast<uint32_t>(s.penalty_slot) < args.sample.rows.penalty_rows_max)
          args.sample.rows.counts[uint64_t{static_cast<uint32_t>(s.penalty_slot)} * args.sample.rows.vocab_size +
                                  static_cast<uint32_t>(result.token)] += 1;
      }
    }
  }
  args.results[r] = result;
}

__global__ void __launch_bounds__(kThreads, 2) sample_kernel(Args args) {
  __shared__ uint32_t is_last;
  const uint32_t r = blockIdx.y, part = blockIdx.x, lane = threadIdx.x % kWarp;
  SampledRow row;
  if (!wait_with_row(args.sample, r, &row)) return;
  const FilterResult kept = args.kept[r];
  Best best;
  if (kept.flags == 0 && !(row.record.flags & kSampleForced))
    best = scan(row, kept, {row.places, part, args.num_parts});
  if (threadIdx.x >= kWarp) return;
  Best* parts = args.parts + uint64_t{r} * args.num_parts;
  if (lane == 0) parts[part] = best;
  if (!arrives_last(&args.counters[r], args.num_parts, 1, kWarp, lane == 0, &is_last)) return;
  const volatile Best* all = parts;
  best = warp_best(lane < args.num_parts ? Best{all[lane].score, all[lane].second, all[lane].token} : Best{});
  if (lane == 0) write_result(args, row, kept, r, best);
}

}  // namespace

Status choose(const Sample& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  const uint32_t num_rows = list.rows_of(op.logits), parts = num_parts(num_rows, inputs);
  KernelChoice choice{.kernel = "sample", .grid = {parts, num_rows}, .threads = kThreads};
  choice.workspace_bytes = uint64_t{num_rows} * parts * sizeof(Best);
  if (choice.workspace_bytes > inputs.workspace_bytes || num_rows > inputs.num_counters)
    return make_error(ErrorCode::kOutOfMemory, "sample: {} rows in {} parts pass the workspace", num_rows, parts);
  add_launch(out, choice, [op](const KernelChoice& c, const OpContext& at) {
    const Args args{{at.sample_inputs, at.rows, at.tensor<float>(op.logits), at.tensor<float>(op.processed),
                     at.desc(op.logits).columns},
                    at.tensor<FilterResult>(op.kept),
                    c.grid.x,
                    reinterpret_cast<Best*>(at.workspace.data),
                    at.workspace.counters,
                    at.results};
    return launch(at, c, sample_kernel, args);
  });
  return {};
}

}  // namespace llmrt::cuda
