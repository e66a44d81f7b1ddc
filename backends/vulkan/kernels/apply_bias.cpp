#include "backends/vulkan/kernels/apply_bias.h"

#include "backends/vulkan/emitter.h"

namespace llmrt::vulkan {

Status emit(Emitter& e, const ApplyBias& op) {
  const Resources& res = e.resources();
  const View processed = e.tensor(op.processed), reads[] = {processed, res.rows}, writes[] = {processed};
  const ApplyBiasKernel::Push push{.processed = processed,
                                   .inputs = res.sample_inputs,
                                   .rows = res.rows,
                                   .vocab_size = e.desc(op.processed).columns};
  e.launch({make_kernel<ApplyBiasKernel>(e.traits().cpu_kernels ? 8 : 64, {}), {e.list().num_sampled}}, PushBytes(push),
           reads, writes);
  return {};
}

}  // namespace llmrt::vulkan
