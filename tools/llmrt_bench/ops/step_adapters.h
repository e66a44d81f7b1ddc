// The adapters that rows of a step have, on a device: random ones, in its pool for good.
#pragma once

#include <cstdint>
#include <vector>

#include "core/backend/backend.h"
#include "core/engine/warm_up.h"
#include "core/model/model.h"
#include "core/ops/op_list.h"
#include "core/request/request.h"
#include "core/schedule/iteration_plan.h"

namespace llmrt::bench {

struct StepAdapters {
  std::vector<ReadyAdapter> adapters;
  std::vector<uint32_t> slots;  // of each, in the device's pool

  bool empty() const { return adapters.empty(); }
  uint32_t of_row(uint32_t row) const { return row % static_cast<uint32_t>(adapters.size()); }
  // Of all parts of the group; 0: they leave it as it is.
  uint32_t rank_of(WeightGroupId group) const;
  // Gives row i adapter i, beginning again behind the last. Without adapters nothing.
  void give_to(IterationPlan* plan) const;
  // What adapter ops cost where `num_rows` rows have adapters.
  AdapterSizes sizes(uint32_t num_rows, const Model& model) const;
  StepAdapters first(uint32_t count) const;
};

// As many as the pool has slots, of the rank that it was planned for. Errors: of the backend; never_fits.
Result<StepAdapters> fill_adapter_pool(const Model& model, const WarmEngine& warm, Backend* backend);

}  // namespace llmrt::bench
