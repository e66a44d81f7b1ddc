#include "core/schedule/plan_limits.h"

#include <algorithm>

#include "core/ops/step_inputs.h"
#include "core/request/logit_changes.h"

namespace llmrt {

PlanLimits plan_limits(const SchedulerConfig& config) {
  PlanLimits limits = {};
  limits.rows_max = std::min(config.sequences_max, config.step_tokens_max);
  limits.tokens_max = config.step_tokens_max;
  limits.samples_max = config.sample_rows_max;
  const uint64_t num_groups = config.kv_pools.size();
  // A clear and a table patch a group for every slot, then parameters and counts for each row. A row that counts what
  // drafts gave has its parameters already.
  limits.row_updates_max = (1 + num_groups) * config.sequences_max + 2ull * limits.rows_max;
  limits.payload_words_max =
      uint64_t{limits.rows_max} * std::max<uint64_t>(sizeof(RowSampling) / 4, 1 + kDraftTokensMax) + config.context_max;
  for (const KvPoolSize& pool : config.kv_pools) {
    const uint64_t chunk_blocks = ceil_div(config.step_tokens_max, pool.block_tokens);
    // What admitted sequences take over stands beside what all take newly.
    const uint64_t beside = std::max(1u, config.kv_pools[0].block_tokens / pool.block_tokens);
    limits.payload_words_max += limits.rows_max + chunk_blocks + beside * shared_blocks_max(config);
    // Blocks that the step before filled, replaced by equal ones, with the one behind them and up to two of tokens that
    // were in flight.
    if (cache_kind(config) == PrefixCacheKind::kOff) continue;
    limits.payload_words_max += 3 * uint64_t{limits.rows_max} + chunk_blocks +
                                uint64_t{limits.rows_max} * (kDraftTokensMax / pool.block_tokens);
  }
  // A row copies one block of group 0. In each other group it begins with a copy of a state, or of the blocks that
  // stand beside its last block of group 0. Or it reads a checkpoint, and writes others: each record once.
  limits.block_copies_max = limits.rows_max;
  limits.block_loads_max = config.host_blocks > 0 ? loaded_blocks_max(config) : 0;
  for (uint32_t g = 1; g < config.kv_pools.size(); ++g) {
    const uint32_t beside = config.kv_pools[0].block_tokens / config.kv_pools[g].block_tokens;
    limits.block_copies_max += (1 + beside) * uint64_t{config.sequences_max};
    if (config.kv_pools[g].kind == CacheKind::kState)
      limits.state_places_max += uint64_t{limits.rows_max} + config.kv_pools[g].num_blocks;
  }
  limits.block_stores_max = host_tier_size(config).stores_max;
  limits.bias_entries_max = config.sample_rows_max * plain_changes_max(config.end_of_generation.size()) +
                            further_changes_max(config.context_max);
  return limits;
}

uint32_t loaded_blocks_max(const SchedulerConfig& config) {
  uint32_t blocks = 0;
  for (const KvPoolSize& pool : config.kv_pools)
    blocks += pool.kind == CacheKind::kState ? 1 : ceil_div(config.context_max, pool.block_tokens);
  return blocks;
}

uint32_t shared_blocks_max(const SchedulerConfig& config) {
  return std::min(config.sequences_max, kBeamCandidatesMax) *
         ceil_div(config.context_max, config.kv_pools[0].block_tokens);
}

HostTierSize host_tier_size(const SchedulerConfig& config) {
  if (config.host_blocks == 0) return {};
  const uint32_t rows_max = std::min(config.sequences_max, config.step_tokens_max);
  const uint32_t chunk_blocks = ceil_div(config.step_tokens_max, config.kv_pools[0].block_tokens);
  return {config.host_blocks, 2 * rows_max + chunk_blocks + loaded_blocks_max(config) + kStepSavesMax};
}

PrefixCacheKind cache_kind(const SchedulerConfig& config) {
  const bool needs_one = config.prefix_cache == PrefixCacheKind::kOff && config.host_blocks > 0;
  return needs_one ? PrefixCacheKind::kHashed : config.prefix_cache;
}

}  // namespace llmrt
