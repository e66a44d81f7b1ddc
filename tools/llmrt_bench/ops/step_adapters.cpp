#include "tools/llmrt_bench/ops/step_adapters.h"

#include <algorithm>

#include "core/adapter/adapter_image.h"
#include "core/adapter/adapter_pool.h"
#include "core/base/check.h"
#include "tools/llmrt_bench/adapters/random_adapter.h"

namespace llmrt::bench {

uint32_t StepAdapters::rank_of(WeightGroupId group) const {
  if (empty()) return 0;
  for (const AdapterRun& run : adapters.front().image->runs)
    if (run.group == group) return run.entry.rank;
  return 0;
}

void StepAdapters::give_to(IterationPlan* plan) const {
  if (empty()) return;
  for (uint32_t row = 0; row < plan->rows.size(); ++row) plan->rows[row].adapter_slot = slots[of_row(row)] + 1;
}

AdapterSizes StepAdapters::sizes(uint32_t num_rows, const Model& model) const {
  if (empty()) return {};
  const AdapterImage& image = *adapters.front().image;
  AdapterSizes sizes;
  sizes.num_rows = num_rows;
  sizes.num_adapters = std::min(num_rows, static_cast<uint32_t>(adapters.size()));
  sizes.number_bytes = dtype_bytes(image.dtype);
  sizes.entries.resize(model.weights.groups.size());
  for (const AdapterRun& run : image.runs) sizes.entries[static_cast<size_t>(run.group)] = run.entry;
  return sizes;
}

StepAdapters StepAdapters::first(uint32_t count) const {
  LLMRT_CHECK(count <= adapters.size(), "as many adapters as there are");
  return {{adapters.begin(), adapters.begin() + count}, {slots.begin(), slots.begin() + count}};
}

Result<StepAdapters> fill_adapter_pool(const Model& model, const WarmEngine& warm, Backend* backend) {
  const AdapterConfig& config = warm.config.adapters;
  StepAdapters out;
  if (config.slots == 0) return out;
  out.adapters =
      make_ready_adapters(model, config.slots, config.planned_rank, backend->caps().activation_dtype, /*seed=*/1);
  AdapterPool pool(AdapterPoolLimits{.bytes = warm.memory_plan.adapter_bytes,
                                     .slots_max = config.slots,
                                     .num_groups = static_cast<uint32_t>(model.weights.groups.size())});
  for (const ReadyAdapter& adapter : out.adapters) {
    Result<AdapterTicket> ticket = pool.want(adapter.image, 0);
    if (!ticket) return ticket.error();
    for (Result<bool> held = pool.try_hold(*ticket, 0); !held || !*held; held = pool.try_hold(*ticket, 0)) {
      if (!held) return held.error();
      for (const AdapterWrite& write : pool.next_writes(~0ull, 0))
        if (Status status = backend->write_adapter_pool(write.pool_offset, write.bytes); !status) return status.error();
    }
    out.slots.push_back(pool.slot_of(*ticket));
  }
  return out;
}

}  // namespace llmrt::bench
