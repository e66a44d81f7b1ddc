// apply_penalties: processed = logits with repetition (divides positive, multiplies negative logits of tokens in prompt
// or output), then presence and frequency (tokens in the output). apply_bias: processed[token] += bias. Only rows whose
// flags ask for it; f32.
#include <algorithm>

#include "backends/cuda/choose.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/sampling.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kThreads = 256, kColumnsThread = 8;  // at least, where there is a row for them

__global__ void __launch_bounds__(kThreads) apply_penalties_kernel(SampleArgs args, float* processed) {
  const uint32_t r = blockIdx.y;
  SampledRow row;
  if (!wait_with_row(args, r, &row)) return;
  const RowSampling& s = row.sampling;
  if (!(s.flags & kRowProcessed)) return;
  const bool penalize = s.flags & kRowPenalties && static_cast<uint32_t>(s.penalty_slot) < args.rows.penalty_rows_max;
  const uint32_t* counts =
      args.rows.counts + (penalize ? uint64_t{static_cast<uint32_t>(s.penalty_slot)} : 0) * args.rows.vocab_size;
  const SampleRecord* records = input_array<SampleRecord>(args.inputs, kSmpRecords);
  const uint32_t num_drafts = penalize ? row.record.flags >> kSampleRunShift : 0;
#pragma unroll 4
  for (uint32_t v = blockIdx.x * kThreads + threadIdx.x; v < args.vocab_size; v += gridDim.x * kThreads) {
    float l = row.raw[v];
    uint32_t count = penalize ? counts[v] : 0;
    for (uint32_t i = 1; i <= num_drafts; ++i) count += static_cast<uint32_t>(records[r - i].forced_token) == v;
    if (count) l = l > 0 ? l / s.repetition_penalty : l * s.repetition_penalty;
    const uint32_t in_output = count & ~RowState::kInPrompt;
    if (in_output) l -= s.presence_penalty + s.frequency_penalty * static_cast<float>(in_output);
    processed[uint64_t{r} * args.vocab_size + v] = l;
  }
}

__global__ void __launch_bounds__(kThreads) apply_bias_kernel(SampleArgs args, float* processed) {
  const uint32_t r = blockIdx.x;
  SampledRow row;
  if (!wait_with_row(args, r, &row) || !(row.sampling.flags & kRowBias)) return;
  const SampleRecord& record = row.record;
  const BiasEntry* entries = input_array<BiasEntry>(args.inputs, kSmpBias) + record.bias_first;
  for (uint32_t i = threadIdx.x; i < record.num_bias; i += kThreads) {
    const BiasEntry entry = entries[i];
    if (static_cast<uint32_t>(entry.token) < args.vocab_size)  // a token may come twice
      atomicAdd(&processed[uint64_t{r} * args.vocab_size + static_cast<uint32_t>(entry.token)], entry.bias);
  }
}

}  // namespace

Status choose(const ApplyPenalties& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  const uint32_t vocab_size = list.tensors[static_cast<size_t>(op.logits)].columns;
  // Mostly no row asks for anything: few enough blocks that all start at once.
  const uint32_t num_rows = list.rows_of(op.logits);
  const uint32_t blocks_max = inputs.tuning.penalties_blocks_sm * inputs.device.num_sms;
  const uint32_t parts = std::clamp(blocks_max / num_rows, 1u, ceil_div(vocab_size, kThreads * kColumnsThread));
  KernelChoice choice{.kernel = "apply_penalties", .grid = {parts, num_rows}, .threads = kThreads};
  add_launch(out, choice, [op](const KernelChoice& c, const OpContext& at) {
    const SampleArgs args{at.sample_inputs, at.rows, at.tensor<float>(op.logits), nullptr, at.desc(op.logits).columns};
    return launch(at, c, apply_penalties_kernel, args, at.tensor<float>(op.processed));
  });
  return {};
}

Status choose(const ApplyBias& op, const OpList& list, const CompileInputs&, Launches* out) {
  KernelChoice choice{.kernel = "apply_bias", .grid = {list.rows_of(op.processed)}, .threads = kThreads};
  add_launch(out, choice, [op](const KernelChoice& c, const OpContext& at) {
    const SampleArgs args{at.sample_inputs, at.rows, nullptr, nullptr, at.desc(op.processed).columns};
    return launch(at, c, apply_bias_kernel, args, at.tensor<float>(op.processed));
  });
  return {};
}

}  // namespace llmrt::cuda
