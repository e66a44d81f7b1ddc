// paged_attention: causal attention of the step's query tokens over their rows' KV blocks. Decode items, prompt items
// and the merge of their splits are three kernels (attention_*.cu). All are in every list that may have prompt items,
// in which decode items come behind: their many short works fill what the prompts' long ones leave of the last round.
// Elsewhere decode items that merge their own splits are alone.
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/attention.h"

namespace llmrt::cuda {

Status run(const PagedAttention& op, const OpContext& at) {
  if (op.kv_group >= at.num_pools)
    return make_error(ErrorCode::kInvalidArgument, "paged_attention: kv_group: expected below {}, found {}",
                      at.num_pools, op.kv_group);
  const KvPool& pool = at.pools[op.kv_group];
  const KvGroup& group = pool.group;
  const uint32_t multiple = 16 / kv_element_bytes(group.dtype);
  if (op.head_dim % multiple != 0 || op.head_dim > 256)
    return make_error(ErrorCode::kUnsupported,
                      "paged_attention: heads of {} numbers over {} keys: expected a multiple of {} up to 256",
                      op.head_dim, kv_dtype_name(group.dtype), multiple);
  if (op.num_kv_heads != group.num_kv_heads || op.head_dim != group.head_dim || op.layer >= group.num_layers ||
      op.num_heads % op.num_kv_heads != 0)
    return make_error(ErrorCode::kInvalidArgument,
                      "paged_attention: layer {}, {} heads over {} of {}: the pool has {} layers, {} heads of {}",
                      op.layer, op.num_heads, op.num_kv_heads, op.head_dim, group.num_layers, group.num_kv_heads,
                      group.head_dim);
  AttentionArgs args{};
  args.inputs = at.forward_inputs + op.kv_group * kForwardHeaderWords;
  args.qkv = at.tensor<float>(op.qkv);
  args.out = at.bytes(op.out);
  args.out_dtype = at.desc(op.out).dtype;
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
  args.kv.block_shift = group.block_tokens == 16 ? 4 : group.block_tokens == 32 ? 5 : 6;
  args.scale = op.scale * op.scales.k;
  args.soft_cap = op.soft_cap;
  args.window = op.window;
  args.partial_values = at.partial_values;
  args.partial_sums = at.partial_sums;
  const bool by_ring = can_attend_by_ring(args, at);
  if (!at.list->decode_only)
    if (Status status = attend_prompt(args, group.dtype, at); !status) return status;
  if (Status status = by_ring ? attend_decode_by_ring(args, group.dtype, at) : attend_decode(args, group.dtype, at);
      !status)
    return status;
  if (at.list->decode_only && by_ring) return {};
  return merge_partials(args, by_ring, at);
}

}  // namespace llmrt::cuda
