#include "core/engine/probe_plan.h"

#include <algorithm>
#include <cstring>

#include "core/base/checked_math.h"

namespace llmrt {

namespace {

// Of the sequences before that one.
uint32_t blocks_before(const ProbeShape& shape, uint32_t sequence_idx) {
  const uint32_t prompts = std::min(sequence_idx, shape.num_sequences), decoding = sequence_idx - prompts;
  return prompts * ceil_div(shape.start + shape.num_tokens, shape.block_tokens) +
         decoding * ceil_div(shape.decoding_start + 1, shape.block_tokens);
}

// The rows that are expanded have their keys there, and none in the latents' group.
void count_expanded(const ProbeShape& shape, const ExpandedShape& expanded, CostSizes* sizes) {
  std::vector<RowRecord> rows;
  for (uint32_t i = 0, token = 0; i < shape.num_rows(); token += shape.tokens_of(i++))
    rows.push_back({i, shape.start_of(i), shape.tokens_of(i), token});
  ExpandedRows chosen;
  chosen.choose(rows, expanded);
  if (chosen.heads() == 0) return;
  const KvGroup one_key{.num_layers = 1, .num_kv_heads = 1, .head_dim = expanded.key_dim(), .block_tokens = 1};
  KvSizes made{0, 0, static_cast<uint32_t>(one_key.bytes_block())};
  KvSizes& latents = sizes->kv.at(expanded.kv_group);
  for (const RowRecord& row : chosen.expanded()) {
    made.tokens += row.start + row.num_tokens;
    for (uint32_t t = 0; t < row.num_tokens; ++t) made.attention_pairs += row.start + t + 1;
  }
  latents.tokens -= made.tokens;
  latents.attention_pairs -= made.attention_pairs;
  sizes->num_absorbed = chosen.num_absorbed();
  sizes->kv.resize(expanded.expanded_group + 1);
  sizes->kv[expanded.expanded_group] = made;
}

}  // namespace

uint32_t probe_blocks(const ProbeShape& shape) {
  return blocks_before(shape, shape.num_rows());
}

IterationPlan probe_setup_plan(const ProbeShape& shape, uint32_t sequence_idx, std::span<const KvPoolSize> pools) {
  constexpr uint32_t kSamplingWords = sizeof(RowSampling) / 4;
  const uint32_t first = blocks_before(shape, sequence_idx), end = blocks_before(shape, sequence_idx + 1);
  IterationPlan plan;
  plan.row_payload.resize(kSamplingWords);
  const RowSampling sampling;  // plain temperature 1
  std::memcpy(plan.row_payload.data(), &sampling, sizeof sampling);
  plan.row_updates.push_back({RowUpdateKind::kSet, sequence_idx, 0, 0, 0, kSamplingWords});
  for (uint32_t g = 0; g == 0 || g < pools.size(); ++g) {
    const uint32_t at = static_cast<uint32_t>(plan.row_payload.size());
    if (g < pools.size() && pools[g].kind == CacheKind::kState) {
      plan.row_updates.push_back({RowUpdateKind::kPatchTable, sequence_idx, 0, g, at, 1});
      plan.row_payload.push_back(sequence_idx % pools[g].num_blocks);
      continue;
    }
    plan.row_updates.push_back({RowUpdateKind::kPatchTable, sequence_idx, 0, g, at, end - first});
    for (uint32_t block = first; block < end; ++block)
      plan.row_payload.push_back(pools.empty() ? block : block % pools[g].num_blocks);
  }
  plan.tokens.push_back(0);
  plan.rows.push_back({sequence_idx, sequence_idx, shape.start_of(sequence_idx), 1, 0, 0, 0, 0, 0, 0});
  return plan;
}

Status apply_row_updates(IterationPlan plan, Backend* backend) {
  ForwardInputs inputs;
  inputs.row_updates = std::move(plan.row_updates);
  inputs.row_payload = std::move(plan.row_payload);
  std::vector<uint32_t> words;
  pack(inputs, &words);
  const SealedList list({"forward", 1, 0, {}, {UpdateRows{}}});
  Result<Ticket> ticket = backend->submit({.forward = &list, .forward_inputs = words});
  if (!ticket) return ticket.error();
  Result<StepOutput> output = backend->wait(*ticket);
  return output ? Status{} : output.error();
}

IterationPlan probe_plan(const ProbeShape& shape, uint32_t vocab_size) {
  IterationPlan plan;
  for (uint32_t i = 0; i < shape.num_rows(); ++i) {
    const uint32_t token_first = static_cast<uint32_t>(plan.tokens.size());
    const uint32_t num_tokens = shape.tokens_of(i), num_samples = shape.samples_of(i);
    for (uint32_t t = 0; t < num_tokens; ++t)
      plan.tokens.push_back(static_cast<int32_t>((token_first + t) * 7919ull % vocab_size));
    plan.rows.push_back({i, i, shape.start_of(i), num_tokens, token_first, static_cast<uint32_t>(plan.samples.size()),
                         num_samples, 0, 0, 0});
    for (uint32_t s = 0; s < num_samples; ++s) plan.samples.push_back({num_tokens - num_samples + s, s});
  }
  return plan;
}

CostSizes probe_sizes(const ProbeShape& shape, const ModelConfig& model, KvDType kv_dtype,
                      const ExpandedShape& expanded) {
  CostSizes sizes;
  sizes.num_tokens = shape.step_tokens();
  for (uint32_t i = 0; i < shape.num_rows(); ++i) sizes.num_sampled += shape.samples_of(i);
  for (const CacheGroup& group : cache_groups(model.layers)) {
    const KvGroup one_token{.num_layers = 1,
                            .num_kv_heads = group.num_kv_heads,
                            .head_dim = group.head_dim,
                            .block_tokens = 1,
                            .dtype = kv_dtype,
                            .keys_only = group.keys_only()};
    KvSizes kv{0, 0, static_cast<uint32_t>(one_token.bytes_block())};
    const auto seen = [&](uint32_t keys) { return group.window > 0 ? std::min(keys, group.window) : keys; };
    for (uint32_t i = 0; i < shape.num_rows(); ++i) {
      const uint32_t start = shape.start_of(i), tokens = shape.tokens_of(i);
      kv.tokens += tokens - 1 + seen(start + 1);  // the first token's keys and those of the tokens behind it
      for (uint32_t t = 0; t < tokens; ++t) kv.attention_pairs += seen(start + t + 1);
    }
    sizes.kv.push_back(kv);
  }
  if (expanded.num_blocks > 0) count_expanded(shape, expanded, &sizes);
  return sizes;
}

}  // namespace llmrt
