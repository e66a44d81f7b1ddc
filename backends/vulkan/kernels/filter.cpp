#include "backends/vulkan/kernels/filter.h"

#include "backends/vulkan/emitter.h"

namespace llmrt::vulkan {

Status emit(Emitter& e, const Filter& op) {
  const Resources& res = e.resources();
  const View kept = e.tensor(op.kept);
  const View reads[] = {e.tensor(op.logits), e.tensor(op.processed), res.rows, kept};
  const View writes[] = {kept, res.candidates, res.arrivals};
  e.launch({make_kernel<FilterKernel>(row_group_size(e.traits()), {}), logits_row_groups(e, op.logits)},
           PushBytes(logits_row_push(e, op.logits, op.processed, op.kept)), reads, writes);
  return {};
}

}  // namespace llmrt::vulkan
