// copy_blocks, store_blocks, load_blocks: KV blocks inside the pool, to the host's pool and back.
#include "backends/vulkan/kernels/move_blocks.h"

#include <algorithm>

#include "backends/vulkan/emitter.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

// Where the moves of one kind stand in the inputs.
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

// How a plane of a block lies, in words. A record is one token.
struct Plane {
  uint32_t num_runs, block_tokens, token_words;
};

// One launch for each run of layers.
void move_plane(Emitter& e, Moves moves, const Plane& plane, const std::vector<View>& from,
                const std::vector<View>& to) {
  const uint32_t group_size = e.traits().cpu_kernels ? 8 : 128;
  const uint32_t block_words = plane.num_runs * plane.block_tokens * plane.token_words;
  for (size_t first = 0, end; first < from.size(); first = end) {
    end = first + 1;
    while (end < from.size() && from[end].buffer == from[first].buffer && to[end].buffer == to[first].buffer) ++end;
    const Run source = run_of(from, first, end), target = run_of(to, first, end);
    const MoveBlocksKernel::Push push{.inputs = e.resources().forward_inputs,
                                      .from = source.all,
                                      .to = target.all,
                                      .count_word = moves.count,
                                      .array_word = moves.array,
                                      .block_tokens = plane.block_tokens,
                                      .token_words = plane.token_words,
                                      .num_runs = plane.num_runs,
                                      .from_layer_words = source.layer_words,
                                      .to_layer_words = target.layer_words,
                                      .kv_group = moves.kv_group};
    const Groups groups{std::min(ceil_div(block_words, group_size), 16u), 4, static_cast<uint32_t>(end - first)};
    e.launch({make_kernel<MoveBlocksKernel>(group_size, {}), groups}, PushBytes(push), {{source.all}}, {{target.all}});
  }
}

// The moves of one op run side by side: none may read what another writes.
Status move(Emitter& e, Moves moves, KvMemory KvPool::*from, KvMemory KvPool::*to) {
  const KvPool& pool = e.resources().pools[moves.kv_group];
  const KvGroup& group = pool.group;
  if ((pool.*from).data.empty() || (pool.*to).data.empty()) return {};
  const uint32_t runs = group.vectors_token(), tokens = group.block_tokens;
  const Plane data = group.is_state() ? Plane{1, 1, group.state_columns}
                                      : Plane{runs, tokens, group.head_dim * kv_element_bytes(group.dtype) / 4};
  move_plane(e, moves, data, (pool.*from).data, (pool.*to).data);
  if (group.scales_vector() > 0)
    move_plane(e, moves, {runs, tokens, group.scales_vector()}, (pool.*from).scales, (pool.*to).scales);
  return {};
}

}  // namespace

Status emit(Emitter& e, const CopyBlocks& op) {
  return move(e, {kFwdNumCopies, kFwdCopies, op.kv_group}, &KvPool::device, &KvPool::device);
}
Status emit(Emitter& e, const StoreBlocks& op) {
  return move(e, {kFwdNumStores, kFwdStores, op.kv_group}, &KvPool::device, &KvPool::host);
}
Status emit(Emitter& e, const LoadBlocks& op) {
  return move(e, {kFwdNumLoads, kFwdLoads, op.kv_group}, &KvPool::host, &KvPool::device);
}

}  // namespace llmrt::vulkan
