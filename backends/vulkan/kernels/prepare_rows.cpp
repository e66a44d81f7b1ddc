#include "backends/vulkan/kernels/prepare_rows.h"

#include "backends/vulkan/emitter.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {

Status emit(Emitter& e, const PrepareRows& op) {
  const Resources& res = e.resources();
  const uint32_t num_tokens = e.list().num_tokens, group_size = e.traits().cpu_kernels ? 8 : 64;
  const View reads[] = {res.rows, res.tables};
  std::vector<View> writes = {e.tensor(op.tokens), e.tensor(op.positions), e.tensor(op.row_slots)};
  PrepareRowsKernel::Push push{.inputs = res.forward_inputs,
                               .rows = res.rows,
                               .tables = res.tables,
                               .tokens = writes[0],
                               .positions = writes[1],
                               .row_slots = writes[2],
                               .num_tokens = num_tokens,
                               .blocks_row_max = res.config.blocks_row_max,
                               .group_words = res.config.slots_max * res.config.blocks_row_max};
  for (uint32_t group = 0; group < kKvGroupsMax; ++group) {
    const bool is_wanted = op.kv_slots[group] != kNoTensor;
    const View places = is_wanted ? e.tensor(op.kv_slots[group]) : writes[0];
    push.kv_slots[group] = places;
    push.block_tokens[group] = group < res.pools.size() ? res.pools[group].group.block_tokens : 0;
    if (!is_wanted) continue;
    writes.push_back(places);
    push.wanted_groups |= 1u << group;
  }
  e.launch({make_kernel<PrepareRowsKernel>(group_size, {}), {ceil_div(num_tokens, group_size)}}, PushBytes(push), reads,
           writes);
  return {};
}

}  // namespace llmrt::vulkan
