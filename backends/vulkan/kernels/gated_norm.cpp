#include "backends/vulkan/kernels/gated_norm.h"

#include "backends/vulkan/kernels/rms_norm.h"
#include "backends/vulkan/kernels/row_state.h"

namespace llmrt::vulkan {

Status emit(Emitter& e, const GatedNorm& op) {
  const auto weight = e.weights().vector(op.weight);
  if (!weight) return weight.error();
  const View x = e.tensor(op.x), out = e.tensor(op.out);
  const ColumnsView gate = columns_view(e, op.gate);
  const uint32_t columns = e.desc(op.x).columns, run = op.group_columns;
  // A weight's size is padded to 16 bytes, by which one of all runs is told.
  if (columns <= 4 && run < columns)
    return make_error(ErrorCode::kUnsupported, "vulkan: gated_norm: expected more than 4 columns in several groups");
  const GatedNormKernel::Push push{.x = x,
                                   .gate = gate.first,
                                   .weight = *weight,
                                   .result = out,
                                   .count = e.live_count(op.x),
                                   .group_columns = run,
                                   .gate_columns = gate.columns,
                                   .eps = op.eps};
  const KernelChoice choice{
      make_kernel<GatedNormKernel>(norm_group_size(e.traits(), run),
                                   {.gate_first = op.gate_first,
                                    .out_dtype = static_cast<uint32_t>(e.desc(op.out).dtype),
                                    .quads = is_aligned(e, op.gate) ? norm_quads(e.traits(), run) : 0,
                                    .shared_weight = weight->bytes < columns * 4ull}),
      {columns / run, e.list().num_tokens}};
  const View reads[] = {x, gate.all, *weight}, writes[] = {out};
  e.launch(choice, PushBytes(push), reads, writes);
  return {};
}

}  // namespace llmrt::vulkan
