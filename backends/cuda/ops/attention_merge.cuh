// The results of a query token's splits become one.
#pragma once

#include "backends/cuda/ops/attention.h"

namespace llmrt::cuda {

// Numbers dim to dim + 3 of a query head, merged in the order of the splits, kAtOnce of which are read at a time; past
// L1, since other blocks of the same kernel may have written them.
template <uint32_t kAtOnce>
__device__ void merge_splits(const AttentionArgs& args, const MergeItem& merge, uint32_t head, uint32_t dim) {
  float most = -INFINITY, sum = 0, out[4] = {};
  for (uint32_t first = 0; first < merge.num_partials; first += kAtOnce) {
    float2 sums[kAtOnce];  // maximum, sum
    float4 values[kAtOnce];
#pragma unroll
    for (uint32_t p = 0; p < kAtOnce; ++p) {
      const bool is_there = first + p < merge.num_partials;
      const uint64_t partial = uint64_t{merge.partial_first + first + p} * args.num_heads + head;
      sums[p] = {-INFINITY, 0};
      values[p] = {};
      if (!is_there) continue;
      sums[p] = __ldcg(reinterpret_cast<const float2*>(args.partial_sums + partial * 2));
      values[p] = __ldcg(reinterpret_cast<const float4*>(args.partial_values + partial * args.head_dim + dim));
    }
    const float before = most;
#pragma unroll
    for (uint32_t p = 0; p < kAtOnce; ++p) most = fmaxf(most, sums[p].x);
    const float base = most == -INFINITY ? 0.0f : most, factor = exp2f(before - base);
    sum *= factor;
#pragma unroll
    for (float& x : out) x *= factor;
#pragma unroll
    for (uint32_t p = 0; p < kAtOnce; ++p) {
      const float weight = exp2f(sums[p].x - base);
      sum += weight * sums[p].y;
      out[0] += weight * values[p].x;
      out[1] += weight * values[p].y;
      out[2] += weight * values[p].z;
      out[3] += weight * values[p].w;
    }
  }
  sum = sum > 0 ? sum + sink_weight(args, head, most) : sum;
  const float inverse = sum > 0 ? 1.0f / sum : sum;
  const uint64_t target = uint64_t{merge.token} * args.out_columns + head * args.value_dim + dim;
  store_two(args.out, args.out_dtype, target, out[0] * inverse, out[1] * inverse);
  store_two(args.out, args.out_dtype, target + 2, out[2] * inverse, out[3] * inverse);
}

}  // namespace llmrt::cuda
