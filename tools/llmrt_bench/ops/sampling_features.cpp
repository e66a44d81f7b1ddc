#include "tools/llmrt_bench/ops/sampling_features.h"

#include <cstring>
#include <limits>

namespace llmrt::bench {
namespace {

constexpr uint32_t kPromptTokens = 48, kOutputTokens = 16, kBiasEntries = 32;

uint32_t token_of(uint32_t sequence_idx, uint32_t i, uint32_t vocab_size) {
  return static_cast<uint32_t>((sequence_idx + 1) * 2654435761ull + i * 40503ull) % vocab_size;
}

}  // namespace

IterationPlan featured_setup_plan(const ProbeShape& shape, uint32_t sequence_idx, uint32_t penalty_slot,
                                  uint32_t vocab_size) {
  IterationPlan plan = probe_setup_plan(shape, sequence_idx);
  RowSampling sampling;
  sampling.flags = kRowPenalties | kRowBias;
  sampling.temperature = 0.8f;
  sampling.top_k = 40;
  sampling.top_p = 0.9f;
  sampling.min_p = 0.02f;
  sampling.repetition_penalty = 1.2f;
  sampling.presence_penalty = 0.3f;
  sampling.frequency_penalty = 0.2f;
  sampling.seed_lo = sequence_idx;
  sampling.penalty_slot = static_cast<int32_t>(penalty_slot);
  std::memcpy(plan.row_payload.data(), &sampling, sizeof sampling);
  const auto first = static_cast<uint32_t>(plan.row_payload.size());
  for (uint32_t i = 0; i < kPromptTokens + kOutputTokens; ++i)
    plan.row_payload.push_back(token_of(sequence_idx, i, vocab_size));
  plan.row_updates.push_back(
      {RowUpdateKind::kRecount, sequence_idx, penalty_slot, kPromptTokens, first, kPromptTokens + kOutputTokens});
  return plan;
}

void add_bias(uint32_t row_idx, uint32_t vocab_size, IterationPlan* plan) {
  const PlanRow& row = plan->rows[row_idx];
  LogitChanges& changes = plan->samples[row.sample_first + row.num_samples - 1].changes;
  changes = {.bias_first = static_cast<uint32_t>(plan->bias.size()), .num_bias = kBiasEntries};
  for (uint32_t i = 0; i < kBiasEntries; ++i) {
    const float bias = i == 0 ? -std::numeric_limits<float>::infinity() : i % 2 ? 2.5f : -1.5f;
    plan->bias.push_back({static_cast<int32_t>(token_of(row.slot, 7 + 3 * i, vocab_size)), bias});
  }
}

void add_logprobs(uint32_t row_idx, IterationPlan* plan) {
  const PlanRow& row = plan->rows[row_idx];
  for (uint32_t i = 0; i < row.num_samples; ++i) plan->samples[row.sample_first + i].logprobs = true;
}

}  // namespace llmrt::bench
