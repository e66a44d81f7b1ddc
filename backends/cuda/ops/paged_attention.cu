// paged_attention: causal attention of the step's query tokens over their rows' KV blocks, in up to three launches
// (choose_attention.cpp), which share their arguments.
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/attention.h"

namespace llmrt::cuda {
namespace {

AttentionArgs args_of(const PagedAttention& op, const OpContext& at) {
  const KvPool& pool = at.pools[op.kv_group];
  const KvGroup group = pool.group.seen_by(op.num_kv_heads);
  AttentionArgs args{};
  args.inputs = at.forward_inputs + op.kv_group * kForwardHeaderWords;
  args.value_dim = op.value_dim > 0 ? op.value_dim : op.head_dim;
  args.out_dtype = at.desc(op.out).dtype;
  args.out_columns = at.desc(op.out).columns;
  args.qkv = at.tensor<float>(op.qkv) + op.head_first * op.head_dim;
  args.out = at.bytes(op.out) + uint64_t{op.head_first} * args.value_dim * dtype_bytes(args.out_dtype);
  args.num_heads = op.num_heads;
  args.head_dim = op.head_dim;
  args.qkv_columns = at.desc(op.qkv).columns;
  args.kv.data = reinterpret_cast<const uint8_t*>(pool.device.data + op.layer * pool.device.layer_bytes);
  args.kv.scales = pool.device.scales ? pool.device.scales + op.layer * pool.device.layer_scales : nullptr;
  args.kv.value_scale = op.scales.v;
  args.kv.tables = at.rows.tables_of(op.kv_group);
  args.kv.blocks_row_max = at.rows.blocks_row_max;
  args.kv.num_blocks = group.num_blocks;
  args.kv.num_kv_heads = op.num_kv_heads;
  args.kv.head_dim = op.head_dim;
  args.kv.block_shift = block_shift_of(group);
  args.scale = op.scale * op.scales.k;
  args.soft_cap = op.soft_cap;
  args.window = op.window;
  args.sinks = op.sinks < 0 ? nullptr : at.weight_vector(op.sinks);
  args.partial_values = at.partial_values;
  args.partial_sums = at.partial_sums;
  return args;
}

}  // namespace

Status launch_attention(const PagedAttention& op, const AttentionChoice& choice, const OpContext& at) {
  constexpr Status (*kLaunches[])(const AttentionChoice&, const AttentionArgs&, KvDType, const OpContext&) = {
      attend_prompt, attend_prompt_by_warpgroups, attend_decode, attend_decode_by_ring,
      attend_runs,   attend_runs_by_ring,         merge_partials};
  const KvDType dtype = at.pools[op.kv_group].group.dtype;
  return kLaunches[static_cast<size_t>(choice.which)](choice, args_of(op, at), dtype, at);
}

}  // namespace llmrt::cuda
