#include "core/schedule/iteration_plan.h"

namespace llmrt {

void IterationPlan::clear() {
  step = batch = 0;
  rows.clear();
  tokens.clear();
  samples.clear();
  bias.clear();
  row_updates.clear();
  row_payload.clear();
  block_stores.clear();
  block_loads.clear();
  block_copies.clear();
  work = {};
}

}  // namespace llmrt
