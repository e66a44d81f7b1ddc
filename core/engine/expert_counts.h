// How many experts the rows of a step go to, counted on the device: what the cost of expert ops depends on. For tools
// that measure; never while requests are served.
#pragma once

#include <vector>

#include "core/backend/backend.h"
#include "core/engine/lower.h"
#include "core/ops/op_list.h"

namespace llmrt {

// The list with the ids of experts in tensors of their own, which can be read behind a run.
OpList keep_expert_ids(OpList list);

// Distinct ids by TensorId of the list, 0 for tensors that are no ids. Empty for a list without experts.
struct ExpertCounts {
  std::vector<double> forward, sample;
};
// Runs the step once. Row state and KV change as by submit.
Result<ExpertCounts> count_experts(const LoweredStep& step, uint32_t num_tokens, Backend* backend);

// "63.4 of 128 distinct experts a layer, 98 % of what even choices make"; empty without experts.
std::string describe_experts(const OpList& list, const std::vector<double>& counts, uint32_t num_rows);

}  // namespace llmrt
