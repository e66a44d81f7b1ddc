// What the ops of the sample list share: a sampled row's record, parameters and logits, and how rows are cut into parts
// so that few rows still fill the device.
#pragma once

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

// exp((logit - max) / temperature).
struct Softener {
  float max, factor;  // factor: log2(e) / temperature
  __device__ Softener(float max_logit, float temperature) : max(max_logit), factor(1.44269504f / temperature) {}
  __device__ float operator()(float logit) const { return exp2f((logit - max) * factor); }
};

// Parts of a row: at most 2 blocks an SM in all.
inline uint32_t num_parts(uint32_t num_rows, int num_sms) {
  constexpr uint32_t kPartsMax = 32;
  const uint32_t parts = 2 * static_cast<uint32_t>(num_sms) / (num_rows ? num_rows : 1);
  return parts < 1 ? 1 : parts > kPartsMax ? kPartsMax : parts;
}

}  // namespace llmrt::cuda
