// kv_write: k and v of each token into the pool, at kv_slots[t] = block * block_tokens + offset (-1: nowhere).
#include "tests/reference/machine.h"

namespace llmrt::reference {

Status run(Machine& m, const KvWrite& op) {
  KvPool& pool = m.pools[op.kv_group];
  const Tensor& qkv = m.tensor(op.qkv);
  for (uint32_t t = 0; t < m.live(op.qkv); ++t) {
    const double kv_slot = m.tensor(op.kv_slots).row(t)[0];
    if (kv_slot < 0) continue;
    const uint32_t block = static_cast<uint32_t>(kv_slot) / pool.group.block_tokens;
    const uint32_t offset = static_cast<uint32_t>(kv_slot) % pool.group.block_tokens;
    if (block >= pool.group.num_blocks)
      return make_error(ErrorCode::kInvalidArgument, "kv_write: kv_slots: block {} of {}", block,
                        pool.group.num_blocks);
    for (uint32_t which = 0; which < 2; ++which)
      for (uint32_t head = 0; head < op.num_kv_heads; ++head)
        pool.store(op.layer, block, which, head, offset, which ? op.scales.v : op.scales.k,
                   qkv.row(t) + (op.num_heads + which * op.num_kv_heads + head) * op.head_dim);
  }
  return {};
}

}  // namespace llmrt::reference
