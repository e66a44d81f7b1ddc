#include "backends/vulkan/kernels/update_rows.h"

#include "backends/vulkan/emitter.h"

namespace llmrt::vulkan {

Status emit(Emitter& e, const UpdateRows&) {
  const Resources& res = e.resources();
  const UpdateRowsKernel::Push push{.inputs = res.forward_inputs,
                                    .rows = res.rows,
                                    .tables = res.tables,
                                    .counts = res.counts,
                                    .blocks_row_max = res.config.blocks_row_max,
                                    .vocab_size = res.config.vocab_size,
                                    .num_kv_groups = res.config.num_kv_groups,
                                    .group_words = res.config.slots_max * res.config.blocks_row_max};
  const View state[] = {res.rows, res.tables, res.counts};
  e.launch({make_kernel<UpdateRowsKernel>(e.traits().cpu_kernels ? 8 : 256, {}), {}}, PushBytes(push), state, state);
  return {};
}

}  // namespace llmrt::vulkan
