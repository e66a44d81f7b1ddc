#include "backends/vulkan/kernels/causal_conv.h"

#include "backends/vulkan/kernels/row_state.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {

Status emit(Emitter& e, const CausalConv& op) {
  const auto state = state_views(e, op.state);
  if (!state) return state.error();
  const auto weight = e.weights().vector(op.weight);
  if (!weight) return weight.error();
  const auto bias = op.bias >= 0 ? e.weights().vector(op.bias) : weight;
  if (!bias) return bias.error();
  const bool has_gate_in = op.gate_in.tensor != kNoTensor, has_gate_out = op.gate_out.tensor != kNoTensor;
  const ColumnsView x = columns_view(e, op.x);
  const ColumnsView gate_in = has_gate_in ? columns_view(e, op.gate_in) : x;
  const ColumnsView gate_out = has_gate_out ? columns_view(e, op.gate_out) : x;
  const View out = e.tensor(op.out);
  const uint32_t channels = e.desc(op.out).columns;
  const bool aligned = channels % 4 == 0 && is_aligned(e, op.x) && (!has_gate_in || is_aligned(e, op.gate_in)) &&
                       (!has_gate_out || is_aligned(e, op.gate_out));
  // A row's first tokens are one tile's: no tile may be shorter where a list has rows of several.
  const uint32_t group_size = e.traits().cpu_kernels ? 8 : 64, tile = e.list().decode_only ? 1 : 16;
  const CausalConvKernel::Push push{.inputs = e.resources().forward_inputs,
                                    .x = x.first,
                                    .gate_in = gate_in.first,
                                    .gate_out = gate_out.first,
                                    .weight = *weight,
                                    .bias = *bias,
                                    .records = state->first,
                                    .tables = state->tables,
                                    .result = out,
                                    .channels = channels,
                                    .x_columns = x.columns,
                                    .gate_in_columns = gate_in.columns,
                                    .gate_out_columns = gate_out.columns,
                                    .record_columns = state->record_columns,
                                    .blocks_row_max = e.resources().config.blocks_row_max,
                                    .kv_group = op.state.kv_group};
  const KernelChoice choice{
      make_kernel<CausalConvKernel>(group_size, {.width = op.width,
                                                 .out_dtype = static_cast<uint32_t>(e.desc(op.out).dtype),
                                                 .tile = tile,
                                                 .aligned = aligned,
                                                 .bias = op.bias >= 0,
                                                 .silu = op.silu,
                                                 .gate_in = has_gate_in,
                                                 .gate_out = has_gate_out}),
      {ceil_div(channels, 4 * group_size), ceil_div(e.list().num_tokens, tile)}};
  const View reads[] = {x.all, gate_in.all, gate_out.all, *weight, *bias, state->records, state->tables};
  const View writes[] = {out, state->records};
  e.launch(choice, PushBytes(push), reads, writes);
  return {};
}

}  // namespace llmrt::vulkan
