// update_rows, prepare_rows, gather_rows, copy_blocks: moving words about.
#include <algorithm>

#include "backends/vulkan/recorder.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {

Status record(Recorder& r, const UpdateRows&) {
  const Resources& res = r.resources();
  Push push;
  push.add(res.forward_inputs).add(res.rows).add(res.tables).add(res.counts);
  push.add(res.config.blocks_row_max).add(res.config.vocab_size);
  const View state[] = {res.rows, res.tables, res.counts};
  r.dispatch({"update_rows", r.traits().cpu_kernels ? 8u : 256u, {}}, push, {}, state, state);
  return {};
}

Status record(Recorder& r, const PrepareRows& op) {
  const Resources& res = r.resources();
  const uint32_t num_tokens = r.list().num_tokens, group_size = r.traits().cpu_kernels ? 8 : 64;
  const View reads[] = {res.rows, res.tables};
  const View writes[] = {r.tensor(op.tokens), r.tensor(op.positions), r.tensor(op.row_slots), r.tensor(op.kv_slots)};
  Push push;
  push.add(res.forward_inputs).add(res.rows).add(res.tables);
  for (const View& view : writes) push.add(view);
  push.add(num_tokens).add(res.config.blocks_row_max);
  push.add(res.pools.empty() ? 0u : res.pools[0].group.block_tokens);
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

// Layers lie at equal distances in one buffer (or a few): one dispatch for each buffer and plane. Most steps have no
// copies, and the kernel leaves at once. The copies of a step run side by side: none may read what another writes.
Status record(Recorder& r, const CopyBlocks& op) {
  const KvPool& pool = r.resources().pools[op.kv_group];
  const uint32_t group_size = r.traits().cpu_kernels ? 8 : 128;
  const auto copy_plane = [&](const std::vector<View>& layers, uint32_t token_words) {
    const uint32_t num_runs = 2 * pool.group.num_kv_heads;
    const uint32_t block_words = num_runs * pool.group.block_tokens * token_words;
    for (size_t first = 0, end; first < layers.size(); first = end) {
      end = first + 1;
      while (end < layers.size() && layers[end].buffer == layers[first].buffer) ++end;
      const uint64_t stride = end > first + 1 ? layers[first + 1].offset - layers[first].offset : 0;
      View all = layers[first];
      all.bytes = layers[end - 1].offset + layers[end - 1].bytes - all.offset;
      Push push;
      push.add(r.resources().forward_inputs).add(all);
      push.add(pool.group.block_tokens).add(token_words).add(num_runs).add(static_cast<uint32_t>(stride / 4));
      r.dispatch({"copy_blocks", group_size, {}}, push,
                 {std::min(ceil_div(block_words, group_size), 16u), 2, static_cast<uint32_t>(end - first)}, {{all}},
                 {{all}});
    }
  };
  copy_plane(pool.data, pool.group.head_dim * kv_element_bytes(pool.group.dtype) / 4);
  if (kv_has_scales(pool.group.dtype)) copy_plane(pool.scales, 1);
  return {};
}

}  // namespace llmrt::vulkan
