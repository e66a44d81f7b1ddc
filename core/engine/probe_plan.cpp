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

Status apply_row_updates(IterationPlan plan, Backend* backend) {
  ForwardInputs inputs;
  inputs.row_updates = std::move(plan.row_updates);
  inputs.row_payload = std::move(plan.row_payload);
  std::vector<uint32_t> words;
  pack(inputs, &words);
  const OpList list{"forward", 1, 0, {}, {UpdateRows{}}};
  Result<Ticket> ticket = backend->submit({.forward = &list, .forward_inputs = words});
  if (!ticket) return ticket.error();
  Result<StepOutput> output = backend->wait(*ticket);
  return output ? Status{} : output.error();
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

CostSizes probe_sizes(const ProbeShape& shape, const ModelConfig& model, KvDType kv_dtype) {
  CostSizes sizes;
  sizes.num_tokens = shape.num_sequences * shape.num_tokens;
  sizes.num_sampled = shape.num_sequences * shape.num_samples;
  sizes.kv_tokens = uint64_t{shape.num_sequences} * (shape.start + shape.num_tokens);
  for (uint32_t t = 0; t < shape.num_tokens; ++t) sizes.attention_pairs += shape.start + t + 1;
  sizes.attention_pairs *= shape.num_sequences;
  const KvGroup one_token{1, model.num_kv_heads, model.head_dim, 1, 0, kv_dtype};
  sizes.kv_bytes_token_layer = static_cast<uint32_t>(one_token.bytes_block());
  return sizes;
}

}  // namespace llmrt
