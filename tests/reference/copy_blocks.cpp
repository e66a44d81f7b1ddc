// copy_blocks: the first num_tokens tokens of a block, of every layer, k and v, with their scales.
#include <algorithm>

#include "tests/reference/machine.h"

namespace llmrt::reference {

Status run(Machine& m, const CopyBlocks& op) {
  KvPool& pool = m.pools[op.kv_group];
  const KvGroup& group = pool.group;
  for (const BlockCopy& copy : m.forward.block_copies) {
    if (copy.source >= group.num_blocks || copy.target >= group.num_blocks || copy.num_tokens > group.block_tokens)
      return make_error(ErrorCode::kInvalidArgument, "copy_blocks: {} tokens of block {} to {} of {} blocks",
                        copy.num_tokens, copy.source, copy.target, group.num_blocks);
    for (uint32_t layer = 0; layer < group.num_layers; ++layer) {
      for (uint32_t which = 0; which < 2; ++which) {
        for (uint32_t head = 0; head < group.num_kv_heads; ++head) {
          const uint64_t element = kv_element_bytes(group.dtype);
          std::copy_n(pool.data[layer].data() + group.element_index(copy.source, which, head, 0) * element,
                      copy.num_tokens * group.head_dim * element,
                      pool.data[layer].data() + group.element_index(copy.target, which, head, 0) * element);
          if (kv_has_scales(group.dtype))
            std::copy_n(pool.scales[layer].data() + pool.scale_index(copy.source, which, head, 0), copy.num_tokens,
                        pool.scales[layer].data() + pool.scale_index(copy.target, which, head, 0));
        }
      }
    }
  }
  return {};
}

}  // namespace llmrt::reference
