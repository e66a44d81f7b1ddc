// Sizes that follow from the configuration: the most that one plan may hold, and what the KV space needs for that.
#pragma once

#include <cstdint>

#include "core/schedule/scheduler_config.h"

namespace llmrt {

// The most that any plan of such a scheduler holds: sizes of the packed inputs.
struct PlanLimits {
  uint32_t rows_max, tokens_max, samples_max;
  uint64_t row_updates_max, payload_words_max, bias_entries_max;
  uint64_t block_copies_max, block_stores_max, block_loads_max, state_places_max;
};
PlanLimits plan_limits(const SchedulerConfig& config);

// KV blocks that the sequences admitted in one step may load from the host tier, in all: as many as a whole context
// has in all groups.
uint32_t loaded_blocks_max(const SchedulerConfig& config);
// KV blocks of group 0 that they may take over from others, in all: as many as the beams of one request, which begin
// again together.
uint32_t shared_blocks_max(const SchedulerConfig& config);

// Every block that one step takes may be one whose content is stored.
HostTierSize host_tier_size(const SchedulerConfig& config);
// Blocks that a step stores for the disk alone; and those of a step that computes nothing.
inline constexpr uint32_t kStepSavesMax = 8, kIdleSavesMax = 64;
// The same for another engine, which waits for them; no more than a step's chunks fill, and their queue takes.
inline constexpr uint32_t kStepHandedMax = 256;
// The host tier needs the books of a cache even when no prefixes are shared.
PrefixCacheKind cache_kind(const SchedulerConfig& config);

}  // namespace llmrt
