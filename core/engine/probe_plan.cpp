#include "core/engine/probe_plan.h"

#include <cstring>

#include "core/base/checked_math.h"

namespace llmrt {

uint32_t probe_blocks(const ProbeShape& shape) {
  return shape.num_sequences * ceil_div(shape.start + shape.num_tokens, shape.block_tokens);
}

IterationPlan probe_plan(const ProbeShape& shape, uint32_t vocab_size) {
  constexpr uint32_t kSamplingWords = sizeof(RowSampling) / 4;
  IterationPlan plan;
  const uint32_t blocks_each = ceil_div(shape.start + shape.num_tokens, shape.block_tokens);
  plan.row_payload.resize(kSamplingWords);
  const RowSampling sampling;  // plain temperature 1
  std::memcpy(plan.row_payload.data(), &sampling, sizeof sampling);
  for (uint32_t i = 0; i < shape.num_sequences; ++i) {
    plan.row_updates.push_back({RowUpdateKind::kSet, i, 0, 0, 0, kSamplingWords});
    plan.row_updates.push_back(
        {RowUpdateKind::kPatchTable, i, 0, 0, static_cast<uint32_t>(plan.row_payload.size()), blocks_each});
    for (uint32_t block = 0; block < blocks_each; ++block) plan.row_payload.push_back(i * blocks_each + block);
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
