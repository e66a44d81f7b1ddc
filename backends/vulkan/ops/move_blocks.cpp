// copy_blocks, store_blocks, load_blocks: KV blocks inside the pool, to the host's pool and back.
#include <algorithm>

#include "backends/vulkan/recorder.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

// Where the moves of one kind stand in the inputs, and whose are done.
struct Moves {
  ForwardHeader count, array;
  uint32_t kv_group;
};

// Consecutive layers that lie at equal distances in one buffer.
struct Run {
  View all;
  uint32_t layer_words = 0;  // from one to the next
};
Run run_of(const std::vector<View>& layers, size_t first, size_t end) {
  Run run{layers[first]};
  run.all.bytes = layers[end - 1].offset + layers[end - 1].bytes - layers[first].offset;
  if (end - first > 1) run.layer_words = static_cast<uint32_t>((layers[first + 1].offset - layers[first].offset) / 4);
  return run;
}

// One dispatch for each run of layers.
void move_plane(Recorder& r, Moves moves, const KvGroup& group, uint32_t token_words, const std::vector<View>& from,
                const std::vector<View>& to) {
  const uint32_t group_size = r.traits().cpu_kernels ? 8 : 128, num_runs = 2 * group.num_kv_heads;
  const uint32_t block_words = num_runs * group.block_tokens * token_words;
  for (size_t first = 0, end; first < from.size(); first = end) {
    end = first + 1;
    while (end < from.size() && from[end].buffer == from[first].buffer && to[end].buffer == to[first].buffer) ++end;
    const Run source = run_of(from, first, end), target = run_of(to, first, end);
    Push push;
    push.add(r.resources().forward_inputs).add(source.all).add(target.all);
    push.add(uint32_t{moves.count}).add(uint32_t{moves.array});
    push.add(group.block_tokens).add(token_words).add(num_runs).add(source.layer_words).add(target.layer_words);
    push.add(moves.kv_group);
    r.dispatch({"move_blocks", group_size, {}}, push,
               {std::min(ceil_div(block_words, group_size), 16u), 4, static_cast<uint32_t>(end - first)},
               {{source.all}}, {{target.all}});
  }
}

// The moves of one op run side by side: none may read what another writes.
Status move(Recorder& r, Moves moves, KvMemory KvPool::*from, KvMemory KvPool::*to) {
  const KvPool& pool = r.resources().pools[moves.kv_group];
  const KvGroup& group = pool.group;
  if ((pool.*from).data.empty() || (pool.*to).data.empty()) return {};
  move_plane(r, moves, group, group.head_dim * kv_element_bytes(group.dtype) / 4, (pool.*from).data, (pool.*to).data);
  if (kv_has_scales(group.dtype))
    move_plane(r, moves, group, group.scales_vector(), (pool.*from).scales, (pool.*to).scales);
  return {};
}

}  // namespace

Status record(Recorder& r, const CopyBlocks& op) {
  return move(r, {kFwdNumCopies, kFwdCopies, op.kv_group}, &KvPool::device, &KvPool::device);
}
Status record(Recorder& r, const StoreBlocks& op) {
  return move(r, {kFwdNumStores, kFwdStores, op.kv_group}, &KvPool::device, &KvPool::host);
}
Status record(Recorder& r, const LoadBlocks& op) {
  return move(r, {kFwdNumLoads, kFwdLoads, op.kv_group}, &KvPool::host, &KvPool::device);
}

}  // namespace llmrt::vulkan
