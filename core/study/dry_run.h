// Drives a Scheduler without a model: answers are as long as they are said to be, and a step takes a millisecond. For
// what depends on the order of things alone.
#pragma once

#include <span>
#include <vector>

#include "core/schedule/scheduler.h"
#include "core/study/timeline.h"

namespace llmrt {

struct DryRequest {
  uint32_t prompt_tokens = 1, output_tokens = 1;  // at least 1 of each
  uint32_t arrival_ms = 0;
};

struct DryRun {
  std::vector<TimelineRequest> requests;  // ids from 1, in the order given
  std::vector<TimelineStep> steps;        // one a millisecond, empty ones where nothing ran
  uint64_t useful_tokens = 0, padded_tokens = 0;
  uint64_t num_chunks = 0;  // of prompts
  uint64_t reread_tokens =
      0;  // of a prompt's earlier chunks, summed over its later ones: they read their keys and values
  // Slots in the block tables and those that hold a token, summed over steps; and the most blocks in use at once.
  uint64_t table_slots = 0, table_tokens = 0;
  uint32_t blocks_max = 0;

  double kv_waste() const {
    return table_slots == 0 ? 0 : 1 - static_cast<double>(table_tokens) / static_cast<double>(table_slots);
  }
  double utilisation() const {
    return static_cast<double>(useful_tokens) / static_cast<double>(useful_tokens + padded_tokens);
  }
};

// `requests` by arrival, not empty. invalid_argument naming the number of the first that can never run.
Result<DryRun> dry_run(const SchedulerConfig& config, std::span<const DryRequest> requests);

}  // namespace llmrt
