// What the ops of the sample list share: a sampled row's record, parameters and logits, and how rows are cut into parts
// so that few rows still fill the device.
#pragma once

#include "backends/cuda/compile_inputs.h"
#include "backends/cuda/intrinsics.cuh"
#include "backends/cuda/op_context.h"
#include "backends/cuda/places.cuh"

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
  Places places;  // of `logits`: what may be drawn
};

__device__ inline SampledRow sampled_row(const SampleArgs& args, uint32_t r) {
  SampledRow row;
  row.record = input_array<SampleRecord>(args.inputs, kSmpRecords)[r];
  row.sampling = args.rows.sampling[row.record.slot];
  row.raw = args.logits + uint64_t{r} * args.vocab_size;
  row.logits = row.sampling.flags & kRowProcessed ? args.processed + uint64_t{r} * args.vocab_size : row.raw;
  row.places = places_of(args.inputs, row.record, row.logits, args.vocab_size);
  return row;
}

// The beginning of a kernel, block by block: waits for the kernel before, with the row's record, mask and parameters
// read ahead of that, which no kernel of the sample list writes. Returns whether there is such a row.
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

// Parts of a row: at most as many blocks in all as the tuning says, and a warp's lanes hold the results of all parts.
inline constexpr uint32_t kPartsMax = 32;
inline uint32_t num_parts(uint32_t num_rows, const CompileInputs& inputs) {
  const uint32_t parts = inputs.tuning.sampling_blocks_sm * inputs.device.num_sms / (num_rows ? num_rows : 1);
  return parts < 1 ? 1 : parts > kPartsMax ? kPartsMax : parts;
}

}  // namespace llmrt::cuda
