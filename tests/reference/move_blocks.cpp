// copy_blocks, store_blocks, load_blocks: the first num_tokens tokens of a block, of every layer, k and v, with their
// scales; a record of states whole. Host blocks follow those of the pool. Moves of other groups are left to the ops of
// those.
#include <algorithm>

#include "tests/reference/machine.h"

namespace llmrt::reference {
namespace {

void copy_block(KvPool& pool, uint32_t source, uint32_t target, uint32_t num_tokens) {
  const KvGroup& group = pool.group;
  const uint64_t element = kv_element_bytes(group.dtype);
  for (uint32_t layer = 0; layer < group.num_layers; ++layer) {
    for (uint32_t which = 0; which < group.planes(); ++which) {
      for (uint32_t head = 0; head < group.num_kv_heads; ++head) {
        std::copy_n(pool.data[layer].data() + group.element_index(source, which, head, 0) * element,
                    num_tokens * group.head_dim * element,
                    pool.data[layer].data() + group.element_index(target, which, head, 0) * element);
        if (group.scales_vector() > 0)
          std::copy_n(pool.scales[layer].data() + pool.scale_index(source, which, head, 0),
                      num_tokens * group.scales_vector(),
                      pool.scales[layer].data() + pool.scale_index(target, which, head, 0));
      }
    }
  }
}

void copy_record(KvPool& pool, uint32_t source, uint32_t target) {
  for (uint32_t layer = 0; layer < pool.group.num_layers; ++layer)
    pool.store_state(layer, target, pool.load_state(layer, source));
}

// Blocks [begin, begin + count) of a pool's memory.
struct Place {
  uint32_t begin, count;
};
Place device_blocks(const KvPool& pool) {
  return {0, pool.group.num_blocks};
}
Place host_blocks(const KvPool& pool) {
  return {pool.group.num_blocks, pool.group.num_host_blocks};
}

template <class OpType>
Status move_blocks(Machine& m, const OpType& op, Place (*from_of)(const KvPool&), Place (*to_of)(const KvPool&),
                   const std::vector<BlockCopy>& moves) {
  KvPool& pool = m.pools[op.kv_group];
  const Place from = from_of(pool), to = to_of(pool);
  for (const BlockCopy& move : moves) {
    if (move.kv_group != op.kv_group) continue;
    if (move.source >= from.count || move.target >= to.count || move.num_tokens > pool.group.block_tokens)
      return make_error(ErrorCode::kInvalidArgument, "{}: {} tokens of block {} of {} to {} of {}", op_name(Op{op}),
                        move.num_tokens, move.source, from.count, move.target, to.count);
    if (pool.group.is_state())
      copy_record(pool, from.begin + move.source, to.begin + move.target);
    else
      copy_block(pool, from.begin + move.source, to.begin + move.target, move.num_tokens);
  }
  return {};
}

}  // namespace

Status run(Machine& m, const CopyBlocks& op) {
  return move_blocks(m, op, device_blocks, device_blocks, m.forward.block_copies);
}
Status run(Machine& m, const StoreBlocks& op) {
  return move_blocks(m, op, device_blocks, host_blocks, m.forward.block_stores);
}
Status run(Machine& m, const LoadBlocks& op) {
  return move_blocks(m, op, host_blocks, device_blocks, m.forward.block_loads);
}

}  // namespace llmrt::reference
