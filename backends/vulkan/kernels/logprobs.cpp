#include "backends/vulkan/kernels/logprobs.h"

#include "backends/vulkan/emitter.h"

namespace llmrt::vulkan {

Status emit(Emitter& e, const Logprobs& op) {
  const Resources& res = e.resources();
  const View reads[] = {e.tensor(op.logits), e.tensor(op.processed), e.tensor(op.kept), res.rows, res.results};
  const View writes[] = {res.results};
  e.launch({make_kernel<LogprobsKernel>(row_group_size(e.traits()), {}), {e.list().num_sampled}},
           PushBytes(logits_row_push(e, op.logits, op.processed, op.kept)), reads, writes);
  return {};
}

}  // namespace llmrt::vulkan
