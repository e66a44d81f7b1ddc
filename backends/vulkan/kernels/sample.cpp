#include "backends/vulkan/kernels/sample.h"

#include "backends/vulkan/emitter.h"

namespace llmrt::vulkan {

Status emit(Emitter& e, const Sample& op) {
  const Resources& res = e.resources();
  const View reads[] = {e.tensor(op.logits), e.tensor(op.processed), e.tensor(op.kept), res.rows};
  const View writes[] = {res.results, res.rows, res.counts, res.candidates, res.arrivals};
  e.launch({make_kernel<SampleKernel>(row_group_size(e.traits()), {}), logits_row_groups(e, op.logits)},
           PushBytes(logits_row_push(e, op.logits, op.processed, op.kept)), reads, writes);
  return {};
}

}  // namespace llmrt::vulkan
