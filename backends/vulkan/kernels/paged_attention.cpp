// paged_attention: the launches that choose_attention names, with the push constants that they share.
#include "backends/vulkan/choose_attention.h"
#include "backends/vulkan/emitter.h"
#include "backends/vulkan/kernels/paged.h"

namespace llmrt::vulkan {

Status emit(Emitter& e, const PagedAttention& op) {
  const Resources& res = e.resources();
  const KvPool& pool = res.pools[op.kv_group];
  const AttentionShape shape{.head_dim = op.head_dim,
                             .num_heads = op.num_heads,
                             .num_kv_heads = op.num_kv_heads,
                             .kv_dtype = pool.group.dtype,
                             .out_dtype = e.desc(op.out).dtype,
                             .soft_cap = op.soft_cap > 0,
                             .sinks = op.sinks >= 0,
                             .num_tokens = e.list().num_tokens,
                             .batch_invariant = e.list().batch_invariant,
                             .decode_only = e.list().decode_only,
                             .has_runs = e.list().has_runs,
                             .prompts_alone = op.value_dim > 0};
  auto launches = choose_attention(e.setting().target, shape);
  if (!launches) return launches.error();
  // Over expanded keys: of heads from head_first on.
  const uint32_t value_dim = op.value_dim > 0 ? op.value_dim : op.head_dim;
  const uint64_t out_at = uint64_t{op.head_first} * value_dim * dtype_bytes(e.desc(op.out).dtype);
  const View whole_q = e.tensor(op.qkv), whole_out = e.tensor(op.out);
  const View qkv = whole_q.part(uint64_t{op.head_first} * op.head_dim * 4,
                                whole_q.bytes - uint64_t{op.head_first} * op.head_dim * 4);
  const View out = whole_out.part(out_at, whole_out.bytes - out_at), data = pool.device.data[op.layer];
  const View scales = kv_has_scales(pool.group.dtype) ? pool.device.scales[op.layer] : data;
  // The group's own header and tables.
  const uint64_t header_first = uint64_t{op.kv_group} * kForwardHeaderWords * 4;
  const View inputs = res.forward_inputs.part(header_first, res.forward_inputs.bytes - header_first);
  const uint64_t group_bytes = uint64_t{res.config.slots_max} * res.config.blocks_row_max * 4;
  const View tables = res.tables.part(op.kv_group * group_bytes, group_bytes);
  View sinks = qkv;  // where there are none, no kernel reads them
  if (op.sinks >= 0) {
    auto weight = e.weights().vector(op.sinks);
    if (!weight) return weight.error();
    sinks = *weight;
  }
  const View reads[] = {qkv, data, scales, tables, sinks}, merge_reads[] = {res.partials, sinks};
  const View writes[] = {out, res.partials};
  const size_t num_sinks = op.sinks >= 0 ? 1 : 0;
  for (const AttentionLaunch& launch : *launches) {
    const PagedPush push{.qkv = qkv,
                         .result = out,
                         .inputs = inputs,
                         .tables = tables,
                         .data = data,
                         .scales = scales,
                         .partials = res.partials,
                         .arrivals = res.merge_arrivals,
                         .sinks = sinks,
                         .num_heads = op.num_heads,
                         .num_kv_heads = op.num_kv_heads,
                         .block_tokens = pool.group.block_tokens,
                         .blocks_row_max = res.config.blocks_row_max,
                         .count_words = {launch.lists.counts[0], launch.lists.counts[1]},
                         .items_words = {launch.lists.firsts[0], launch.lists.firsts[1]},
                         .scale = op.scale * op.scales.k,
                         .window = op.window,
                         .soft_cap = op.soft_cap,
                         .v_scale = op.scales.v,
                         .row_heads = e.desc(op.qkv).columns / op.head_dim,
                         .out_shape = out_shape_of(e.desc(op.out).columns / value_dim, value_dim)};
    const std::span launch_reads =
        launch.merges ? std::span(merge_reads).first(1 + num_sinks) : std::span(reads).first(4 + num_sinks);
    e.launch(launch, PushBytes(push), launch_reads, std::span(writes).first(launch.claims ? 2 : 0));
  }
  return {};
}

}  // namespace llmrt::vulkan
