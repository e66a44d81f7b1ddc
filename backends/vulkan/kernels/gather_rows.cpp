#include "backends/vulkan/kernels/gather_rows.h"

#include "backends/vulkan/emitter.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {

Status emit(Emitter& e, const GatherRows& op) {
  const uint32_t columns = e.desc(op.x).columns, group_size = e.traits().cpu_kernels ? 8 : 128;
  const View reads[] = {e.tensor(op.x)}, writes[] = {e.tensor(op.out)};
  const GatherRowsKernel::Push push{
      .x = reads[0], .result = writes[0], .inputs = e.resources().sample_inputs, .columns = columns};
  e.launch({make_kernel<GatherRowsKernel>(group_size, {}), {ceil_div(columns, group_size), e.list().num_sampled}},
           PushBytes(push), reads, writes);
  return {};
}

}  // namespace llmrt::vulkan
