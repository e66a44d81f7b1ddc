#include "backends/vulkan/kernels/apply_penalties.h"

#include <algorithm>

#include "backends/vulkan/emitter.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {

Status emit(Emitter& e, const ApplyPenalties& op) {
  const Resources& res = e.resources();
  const uint32_t vocab_size = e.desc(op.logits).columns, group_size = e.traits().cpu_kernels ? 8 : 256;
  const View reads[] = {e.tensor(op.logits), res.rows, res.counts}, writes[] = {e.tensor(op.processed)};
  const ApplyPenaltiesKernel::Push push{.logits = reads[0],
                                        .processed = writes[0],
                                        .inputs = res.sample_inputs,
                                        .rows = res.rows,
                                        .counts = res.counts,
                                        .vocab_size = vocab_size};
  // Mostly no row asks for anything: no more groups than start at once.
  const uint32_t num_rows = e.list().num_sampled, groups_max = 8 * e.traits().num_cores;
  const uint32_t groups = std::clamp(groups_max / num_rows, 1u, ceil_div(vocab_size, 8 * group_size));
  e.launch({make_kernel<ApplyPenaltiesKernel>(group_size, {}), {groups, num_rows}}, PushBytes(push), reads, writes);
  return {};
}

}  // namespace llmrt::vulkan
