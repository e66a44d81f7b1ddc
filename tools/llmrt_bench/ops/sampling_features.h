// Rows that ask for everything that the ops of a sample list can do, so that each has something to do.
#pragma once

#include "core/engine/probe_plan.h"

namespace llmrt::bench {

// probe_setup_plan, but with penalties that count some tokens in row `penalty_slot`, bias, and all filters.
IterationPlan featured_setup_plan(const ProbeShape& shape, uint32_t sequence_idx, uint32_t penalty_slot,
                                  uint32_t vocab_size);
// For row `row_idx` of the plan; a sequence's bias is the same in any plan.
void add_bias(uint32_t row_idx, uint32_t vocab_size, IterationPlan* plan);
void add_logprobs(uint32_t row_idx, IterationPlan* plan);

}  // namespace llmrt::bench
