// What the ops of the sample list share: a sampled row's record, parameters and logits, and how rows are cut into parts
// so that few rows still fill the device.
#pragma once

#include "backends/cuda/compile_inputs.h"
#include "backends/cuda/intrinsics.cuh"
#include "backends/cuda/op_context.h"
#include "backends/cuda/step_inputs.cuh"

namespace llmrt::cuda {

// Where the numbers of the sample list lie. Passed to kernels by value.
struct SampleArgs {
  const uint32_t* inputs;
  RowState rows;
  const float* logits;     // [R, vocab_size]
  const float* processed;  // [R, vocab_size]
  uint32_t vocab_size;
};

struct SampledRow {
  SampleRecord record;
  RowSampling sampling;
  const float* logits;  // processed ones where the row's flags say so
  const float* raw;
};

__device__ inline SampledRow sampled_row(const SampleArgs& args, uint32_t r) {
  SampledRow row;
  row.record = input_array<SampleRecord>(args.inputs, kSmpRecords)[r];
  row.sampling = args.rows.sampling[row.record.slot];
  row.raw = args.logits + uint64_t{r} * args.vocab_size;
  row.logits = row.sampling.flags & kRowProcessed ? args.processed + uint64_t{r} * args.vocab_size : row.raw;
  return row;
}

// The beginning of a kernel, block by block: waits for the kernel before, with the row's record and parameters read
// ahead of that, which no kernel of the sample list writes. Returns whether there is such a row.
__device__ inline bool wait_with_row(const SampleArgs& args, uint32_t r, SampledRow* row) {
  grid_dependency_release();
  const bool exists = r < args.inputs[kSmpNumRecords];
  if (exists) *row = sampled_row(args, r);
  grid_dependency_wait();
  return exists;
}

// exp((logit - max) / temperature).
struct Softener {
  float max, factor;  // factor: log2(e) / temperature
  __device__ Softener(float max_logit, float temperature) : max(max_logit), factor(kLog2E / temperature) {}
  __device__ float operator()(float logit) const { return exp2f((logit - max) * factor); }
};

// The log-probability of a token that is kept, in the distribution that is drawn from.
__device__ inline double scaled_logprob(float logit, float temperature, const FilterResult& kept) {
  return (static_cast<double>(logit) - static_cast<double>(kept.max_logit)) / static_cast<double>(temperature) -
         static_cast<double>(kept.log_sum);
}

// A pass over a row takes quads: four neighbouring tokens, -inf behind the row's end.
__device__ inline uint32_t num_quads(uint32_t vocab_size) {
  return (vocab_size + 3) / 4;
}
__device__ inline float4 load_quad(const float* logits, uint32_t quad, uint32_t vocab_size) {
  if (vocab_size % 4 == 0) return reinterpret_cast<const float4*>(logits)[quad];
  const auto load = [&](uint32_t v) { return v < vocab_size ? logits[v] : -INFINITY; };
  return {load(4 * quad), load(4 * quad + 1), load(4 * quad + 2), load(4 * quad + 3)};
}

// What a block of kThreads reads of a row: the quads of one of its parts.
struct RowPart {
  uint32_t begin, end;
  __device__ RowPart(uint32_t vocab_size, uint32_t part, uint32_t num_parts)
      : begin(static_cast<uint32_t>(uint64_t{num_quads(vocab_size)} * part / num_parts)),
        end(static_cast<uint32_t>(uint64_t{num_quads(vocab_size)} * (part + 1) / num_parts)) {}
};

// visit(the four logits, quad) for this thread's quads of the part, in their order; four loads are under way at once.
template <uint32_t kThreads, class Visit>
__device__ void for_quads(const float* logits, uint32_t vocab_size, const RowPart& part, Visit visit) {
  constexpr uint32_t kLoads = 4;
  for (uint32_t first = part.begin + threadIdx.x; first < part.end; first += kLoads * kThreads) {
    float4 quads[kLoads];
#pragma unroll
    for (uint32_t i = 0; i < kLoads; ++i) {
      const uint32_t quad = first + i * kThreads;
      quads[i] =
          quad < part.end ? load_quad(logits, quad, vocab_size) : float4{-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    }
#pragma unroll
    for (uint32_t i = 0; i < kLoads; ++i) visit(quads[i], first + i * kThreads);
  }
}

// Parts of a row: at most as many blocks in all as the tuning says, and a warp's lanes hold the results of all parts.
inline constexpr uint32_t kPartsMax = 32;
inline uint32_t num_parts(uint32_t num_rows, const CompileInputs& inputs) {
  const uint32_t parts = inputs.tuning.sampling_blocks_sm * inputs.device.num_sms / (num_rows ? num_rows : 1);
  return parts < 1 ? 1 : parts > kPartsMax ? kPartsMax : parts;
}

}  // namespace llmrt::cuda
