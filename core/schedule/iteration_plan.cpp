#include "core/schedule/iteration_plan.h"

namespace llmrt {

const char* tail_kind_name(TailKind kind) {
  constexpr const char* kNames[] = {"sample", "score", "embed"};
  return kNames[static_cast<size_t>(kind)];
}

void IterationPlan::clear() {
  step = batch = 0;
  rows.clear();
  tokens.clear();
  state_places.clear();
  samples.clear();
  bias.clear();
  masks.clear();
  late_rows.clear();
  row_updates.clear();
  row_payload.clear();
  block_stores.clear();
  block_loads.clear();
  block_copies.clear();
  work = {};
}

}  // namespace llmrt
