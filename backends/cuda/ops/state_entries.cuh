// Keys and decays of the entries that rows leave in their rings (core/ops/recurrent_ops.h), for rows whose blocks may
// not write them while others yet read (more than kRingRowTokens tokens): a kernel behind state_walk. Blocks (entry,
// row).
#pragma once

#include "backends/cuda/ops/state_lanes.cuh"

namespace llmrt::cuda {

// Numbers of one position: what its token gives, or, before the row, what the record has from which the row begins.
template <bool kDelta>
__device__ void write_entry(const WalkArgs& args, const RowRecord& row, uint32_t position, const float* source,
                            float* own) {
  const uint64_t ring = args.ring.matrix_numbers();
  const bool is_new = position >= row.start;
  const uint32_t token = is_new ? row.token_first + position - row.start : 0;
  for (uint32_t i = threadIdx.x; i < args.key_heads * args.key_dim; i += blockDim.x) {
    const uint64_t place = ring + args.ring.keys(i / args.key_dim, position) + i % args.key_dim;
    own[place] = is_new ? args.k.of(token)[i] : source[place];
  }
  for (uint32_t head = threadIdx.x; head < args.num_heads; head += blockDim.x) {
    const uint64_t place = ring + args.ring.decay(head, position);
    if (!is_new) {
      own[place] = source[place];
      continue;
    }
    const float gate = args.gate.of(token)[args.gate_column(head)] + args.dt_bias[head];
    own[place] = token_gates<kDelta>(args, gate, 0, args.a[head]).decay;
  }
}

template <bool kDelta>
__global__ void state_entries_kernel(const WalkArgs args) {
  grid_dependency_wait();
  const RowRecord* rows = input_array<RowRecord>(args.states.inputs, kFwdRows);
  for (uint32_t r = blockIdx.y; r < args.states.inputs[kFwdNumRows]; r += gridDim.y) {
    const RowRecord row = rows[r];
    const uint32_t end = row.start + row.num_tokens, position = end / kRingTokens * kRingTokens + blockIdx.x;
    if (row.num_tokens <= kRingRowTokens || position >= end) continue;
    const float* source = args.states.source(row);
    float* own = args.states.own(row);
    if (own && (position >= row.start || (source && source != own)))
      write_entry<kDelta>(args, row, position, source, own);
  }
}

}  // namespace llmrt::cuda
