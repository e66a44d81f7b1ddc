#include "backends/vulkan/kernels/prepare_rows.h"

#include "backends/vulkan/emitter.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {

Status emit(Emitter& e, const PrepareRows& op) {
  const Resources& res = e.resources();
  const uint32_t num_tokens = e.list().num_tokens, group_size = e.traits().cpu_kernels ? 8 : 64;
  const View reads[] = {res.rows, res.tables};
  const View writes[] = {e.tensor(op.tokens), e.tensor(op.positions), e.tensor(op.row_slots), e.tensor(op.kv_slots)};
  const PrepareRowsKernel::Push push{.inputs = res.forward_inputs,
                                     .rows = res.rows,
                                     .tables = res.tables,
                                     .tokens = writes[0],
                                     .positions = writes[1],
                                     .row_slots = writes[2],
                                     .kv_slots = writes[3],
                                     .num_tokens = num_tokens,
                                     .blocks_row_max = res.config.blocks_row_max,
                                     .block_tokens = res.pools.empty() ? 0 : res.pools[0].group.block_tokens};
  e.launch({make_kernel<PrepareRowsKernel>(group_size, {}), {ceil_div(num_tokens, group_size)}}, PushBytes(push), reads,
           writes);
  return {};
}

}  // namespace llmrt::vulkan
