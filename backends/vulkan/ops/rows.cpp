// update_rows, prepare_rows, gather_rows: moving words about.
#include <algorithm>

#include "backends/vulkan/recorder.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {

Status record(Recorder& r, const UpdateRows&) {
  const Resources& res = r.resources();
  Push push;
  push.add(res.forward_inputs).add(res.rows).add(res.tables).add(res.counts);
  push.add(res.config.blocks_row_max).add(res.config.vocab_size);
  push.add(res.config.num_kv_groups).add(res.config.slots_max * res.config.blocks_row_max);
  const View state[] = {res.rows, res.tables, res.counts};
  r.dispatch({"update_rows", r.traits().cpu_kernels ? 8u : 256u, {}}, push, {}, state, state);
  return {};
}

Status record(Recorder& r, const PrepareRows& op) {
  const Resources& res = r.resources();
  const uint32_t num_tokens = r.list().num_tokens, group_size = r.traits().cpu_kernels ? 8 : 64;
  const View reads[] = {res.rows, res.tables};
  std::vector<View> writes = {r.tensor(op.tokens), r.tensor(op.positions), r.tensor(op.row_slots)};
  Push push;
  push.add(res.forward_inputs).add(res.rows).add(res.tables);
  for (const View& view : writes) push.add(view);
  uint32_t wanted_groups = 0;
  for (uint32_t group = 0; group < kKvGroupsMax; ++group) {
    const bool wanted = op.kv_slots[group] != kNoTensor;
    const View places = wanted ? r.tensor(op.kv_slots[group]) : writes[0];
    push.add(places);
    if (!wanted) continue;
    writes.push_back(places);
    wanted_groups |= 1u << group;
  }
  for (uint32_t group = 0; group < kKvGroupsMax; ++group)
    push.add(group < res.pools.size() ? res.pools[group].group.block_tokens : 0u);
  push.add(num_tokens).add(res.config.blocks_row_max).add(res.config.slots_max * res.config.blocks_row_max);
  push.add(wanted_groups);
  r.dispatch({"prepare_rows", group_size, {}}, push, {ceil_div(num_tokens, group_size)}, reads, writes);
  return {};
}

Status record(Recorder& r, const GatherRows& op) {
  const uint32_t columns = r.desc(op.x).columns, group_size = r.traits().cpu_kernels ? 8 : 128;
  const View reads[] = {r.tensor(op.x)}, writes[] = {r.tensor(op.out)};
  Push push;
  push.add(reads[0]).add(writes[0]).add(r.resources().sample_inputs).add(columns);
  r.dispatch({"gather_rows", group_size, {}}, push, {ceil_div(columns, group_size), r.list().num_sampled}, reads,
             writes);
  return {};
}

}  // namespace llmrt::vulkan
