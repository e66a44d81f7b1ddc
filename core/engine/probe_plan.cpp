#include "core/engine/probe_plan.h"

#include <cstring>

#include "core/base/checked_math.h"

namespace llmrt {

uint32_t probe_blocks(const ProbeShape& shape) {
  return shape.num_sequences * ceil_div(shape.start + shape.num_tokens, shape.block_tokens);
}

IterationPlan probe_setup_plan(const ProbeShape& shape, uint32_t sequence_idx) {
  constexpr uint32_t kSamplingWords = sizeof(RowSampling) / 4;
  const uint32_t blocks_each = probe_blocks(shape) / shape.num_sequences;
  IterationPlan plan;
  plan.row_payload.resize(kSamplingWords);
  const RowSampling sampling;  // plain temperature 1
  std::memcpy(plan.row_payload.data(), &sampling, sizeof sampling);
  plan.row_updates.push_back({RowUpdateKind::kSet, sequence_idx, 0, 0, 0, kSamplingWords});
  plan.row_updates.push_back({RowUpdateKind::kPatchTable, sequence_idx, 0, 0, kSamplingWords, blocks_each});
  for (uint32_t block = 0; block < blocks_each; ++block) plan.row_payload.push_back(sequence_idx * blocks_each + block);
  plan.tokens.push_back(0);
  plan.rows.push_back({sequence_idx, sequence_idx, shape.start, 1, 0, 0, 0, 0, 0, 0});
  return plan;
}

IterationPlan probe_plan(const ProbeShape& shape, uint32_t vocab_size) {
  IterationPlan plan;
  for (uint32_t i = 0; i < shape.num_sequences; ++i) {
    const uint32_t token_first = static_cast<uint32_t>(plan.tokens.size());
    for (uint32_t t = 0; t < shape.num_tokens; ++t)
      plan.tokens.push_back(static_cast<int32_t>((token_first + t) * 7919ull % vocab_size));
    plan.rows.push_back({i, i, shape.start, shape.num_tokens, token_first, static_cast<uint32_t>(plan.samples.size()),
                         shape.num_samples, 0, 0, 0});
    for (uint32_t s = 0; s < shape.num_samples; ++s)
      plan.samples.push_back({shape.num_tokens - shape.num_samples + s, s});
  }
  return plan;
}

}  // namespace llmrt
