// latent_rows, head_matmul, latent_attention, expand_latent.
#include "backends/vulkan/kernels/latent.h"

#include <algorithm>
#include <vector>

#include "backends/vulkan/choose_attention.h"
#include "backends/vulkan/emitter.h"
#include "backends/vulkan/kernels/paged_attention_merge.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

// The group's own header and tables.
View inputs_of(const Resources& res, uint32_t kv_group) {
  const uint64_t first = uint64_t{kv_group} * kForwardHeaderWords * 4;
  return res.forward_inputs.part(first, res.forward_inputs.bytes - first);
}
View tables_of(const Resources& res, uint32_t kv_group) {
  const uint64_t bytes = uint64_t{res.config.slots_max} * res.config.blocks_row_max * 4;
  return res.tables.part(kv_group * bytes, bytes);
}

Status check_latent(const char* what, uint32_t rank, uint32_t rope_dim) {
  if (rank % 16 == 0 && rope_dim % 16 == 0 && rank <= kLatentRankMax && rank + rope_dim <= kLatentRowMax) return {};
  return make_error(ErrorCode::kUnsupported,
                    "vulkan: {}: rows of {} + {} numbers: expected multiples of 16, up to {} and {} together", what,
                    rank, rope_dim, kLatentRankMax, kLatentRowMax);
}

constexpr uint32_t kNone = kForwardHeaderWords - 1;  // a header word that is always 0
constexpr ItemLists kDecodeItems = {{kFwdNumDecodeItems, kNone}, {kFwdDecodeItems, kNone}};
constexpr ItemLists kPromptItems = {{kFwdNumPromptItems, kNone}, {kFwdPromptItems, kNone}};
constexpr ItemLists kMergeItems = {{kFwdNumMerges, kNone}, {kFwdMerges, kNone}};

}  // namespace

Status emit(Emitter& e, const LatentRows& op) {
  if (Status status = check_latent("latent_rows", op.rank, op.rope_dim); !status) return status;
  auto norm = e.weights().vector(op.norm), freqs = e.weights().vector(op.freqs);
  if (!norm) return norm.error();
  if (!freqs) return freqs.error();
  const KvPool& pool = e.resources().pools[op.kv_group];
  const View q = e.tensor(op.q), kv = e.tensor(op.kv), query = e.tensor(op.query);
  const View positions = e.tensor(op.positions), slots = e.tensor(op.kv_slots), data = pool.device.data[op.layer];
  const View scales = kv_has_scales(pool.group.dtype) ? pool.device.scales[op.layer] : View{};
  const LatentRowsKernel::Push push{.q = q,
                                    .kv = kv,
                                    .query = query,
                                    .positions = positions,
                                    .kv_slots = slots,
                                    .norm = *norm,
                                    .freqs = *freqs,
                                    .data = data,
                                    .scales = scales.bytes > 0 ? scales : data,
                                    .count = e.live_count(op.q),
                                    .num_heads = op.num_heads,
                                    .nope = op.nope,
                                    .rank = op.rank,
                                    .rope_dim = op.rope_dim,
                                    .eps = op.eps,
                                    .magnitude = op.magnitude,
                                    .k_scale = op.scales.k,
                                    .turns_q = op.turns_q};
  const uint32_t group_size = e.traits().cpu_kernels ? 8 : 64;
  const KernelChoice choice{make_kernel<LatentRowsKernel>(group_size, {.rope = static_cast<uint32_t>(op.pairing) + 1,
                                                                       .write = kv_constant(pool.group.dtype)}),
                            {e.list().rows_of(op.q)}};
  const View reads[] = {q, kv, positions, slots};
  std::vector<View> writes = {query, data};
  if (scales.bytes > 0) writes.push_back(scales);
  if (op.turns_q) writes.push_back(q);
  e.launch(choice, PushBytes(push), reads, writes);
  return {};
}

Status emit(Emitter& e, const HeadMatmul& op) {
  const GroupPieces& group = e.weights().group(op.group);
  const TensorDesc &x = e.desc(op.x), &out = e.desc(op.out);
  if (group.pieces.size() != 1)
    return make_error(ErrorCode::kUnsupported, "vulkan: head_matmul: expected all heads' rows in one piece, found {}",
                      group.pieces.size());
  const Piece& piece = group.pieces[0];
  const uint32_t columns = static_cast<uint32_t>(group.columns), x_stride = x.columns / op.num_heads;
  const uint32_t out_stride = out.columns / op.num_heads;
  if (columns % 8 != 0 || x_stride % 4 != 0 || (out.dtype != DType::kF32 && out_stride % 2 != 0))
    return make_error(
        ErrorCode::kUnsupported,
        "vulkan: head_matmul: expected columns in multiples of 8, heads of x of 4, of out of 2, found {}, "
        "{}, {}",
        columns, x_stride, out_stride);
  const uint32_t rows = static_cast<uint32_t>(group.rows / op.num_heads), tokens = e.list().rows_of(op.x);
  const HeadMatmulKernel::Push push{
      .x = e.tensor(op.x),
      .weight = piece.view,
      .result = e.tensor(op.out),
      .count = op.absorbed_only ? e.resources().forward_inputs.part(kFwdNumAbsorbed * 4ull, 4) : e.live_count(op.x),
      .columns = columns,
      .row_words = row_words(piece.encoding, columns),
      .num_rows = rows,
      .num_heads = op.num_heads,
      .x_stride = x_stride,
      .out_stride = out_stride};
  // The order of a sum is that of the columns, whatever cols is.
  const uint32_t group_size = e.traits().cpu_kernels ? 8 : 64, cols = tokens <= 2 ? tokens : tokens <= 32 ? 4 : 8;
  const KernelChoice choice{make_kernel<HeadMatmulKernel>(group_size, {.layout = layout_constant(piece),
                                                                       .cols = cols,
                                                                       .x_dtype = static_cast<uint32_t>(x.dtype),
                                                                       .out_dtype = static_cast<uint32_t>(out.dtype)}),
                            {ceil_div(ceil_div(rows, 2u), group_size), op.num_heads, ceil_div(tokens, cols)}};
  const View x_view = e.tensor(op.x), out_view = e.tensor(op.out);
  e.launch(choice, PushBytes(push), {{x_view, piece.view}}, {{out_view}});
  return {};
}

Status emit(Emitter& e, const ExpandLatent& op) {
  if (Status status = check_latent("expand_latent", op.rank, op.rope_dim); !status) return status;
  const Resources& res = e.resources();
  const KvPool &pool = res.pools[op.kv_group], &out = res.pools[op.expanded_group];
  const View data = pool.device.data[op.layer], tables = tables_of(res, op.kv_group), result = out.device.data[0];
  const View scales = kv_has_scales(pool.group.dtype) ? pool.device.scales[op.layer] : data;
  const uint32_t group_size = e.traits().cpu_kernels ? 8 : 64;
  const uint32_t groups_most = e.traits().cpu_kernels
                                   ? e.setting().target.tuning.attention_cpu_groups
                                   : e.traits().num_cores * e.setting().target.tuning.attention_groups_core;
  for (const bool is_values : {false, true}) {
    const GroupPieces& group = e.weights().group(is_values ? op.value_group : op.key_group);
    if (group.pieces.size() != 1)
      return make_error(ErrorCode::kUnsupported,
                        "vulkan: expand_latent: expected all heads' rows in one piece, found {}", group.pieces.size());
    const Piece& piece = group.pieces[0];
    const uint32_t num_rows = is_values ? op.value_dim : op.nope, copied = is_values ? 0 : op.rope_dim;
    if (num_rows % 4 != 0)
      return make_error(ErrorCode::kUnsupported, "vulkan: expand_latent: expected heads in multiples of 4, found {}",
                        num_rows);
    const ExpandLatentKernel::Push push{.data = data,
                                        .scales = scales,
                                        .inputs = inputs_of(res, op.expanded_group),
                                        .tables = tables,
                                        .weight = piece.view,
                                        .result = result,
                                        .row_words = row_words(piece.encoding, op.rank),
                                        .num_rows = num_rows,
                                        .head_first = op.head_first,
                                        .num_heads = op.num_heads,
                                        .head_dim = op.key_dim(),
                                        .which = is_values,
                                        .copied = copied,
                                        .row_dim = op.row_dim(),
                                        .block_tokens = pool.group.block_tokens,
                                        .blocks_row_max = res.config.blocks_row_max,
                                        .k_scale = op.scales.k};
    constexpr uint32_t kKeys = 16;
    const uint32_t parts = ceil_div(num_rows / 2, group_size);
    const uint32_t works = out.group.seen_by(op.num_heads).num_blocks * (kExpandItemKeys / kKeys);
    const KernelChoice choice{
        make_kernel<ExpandLatentKernel>(group_size, {.layout = layout_constant(piece),
                                                     .keys = kKeys,
                                                     .kv_dtype = kv_constant(pool.group.dtype),
                                                     .columns = op.rank}),
        {parts, op.num_heads, std::clamp(groups_most / (parts * op.num_heads), 1u, std::max(works, 1u))}};
    // Keys and values lie in different halves of a block.
    const View reads[] = {data, scales, tables, piece.view}, writes[] = {result};
    e.launch(choice, PushBytes(push), reads, std::span(writes).first(is_values ? 0 : 1));
  }
  return {};
}

Status emit(Emitter& e, const LatentAttention& op) {
  if (Status status = check_latent("latent_attention", op.rank, op.rope_dim); !status) return status;
  const Resources& res = e.resources();
  const KvPool& pool = res.pools[op.kv_group];
  const View query = e.tensor(op.query), out = e.tensor(op.out), data = pool.device.data[op.layer];
  const View scales = kv_has_scales(pool.group.dtype) ? pool.device.scales[op.layer] : data;
  const View inputs = inputs_of(res, op.kv_group), tables = tables_of(res, op.kv_group);
  const auto push_of = [&](const ItemLists& lists) {
    return PagedPush{.qkv = query,
                     .result = out,
                     .inputs = inputs,
                     .tables = tables,
                     .data = data,
                     .scales = scales,
                     .partials = res.partials,
                     .arrivals = res.merge_arrivals,
                     .sinks = query,
                     .num_heads = op.num_heads,
                     .num_kv_heads = 1,
                     .block_tokens = pool.group.block_tokens,
                     .blocks_row_max = res.config.blocks_row_max,
                     .count_words = {lists.counts[0], lists.counts[1]},
                     .items_words = {lists.firsts[0], lists.firsts[1]},
                     .scale = op.scale,
                     .window = 0,
                     .soft_cap = 0,
                     .v_scale = op.scales.k,  // values are keys
                     .row_heads = op.num_heads,
                     .out_shape = out_shape_of(op.num_heads, op.rank)};
  };
  const bool is_cpu = e.traits().cpu_kernels;
  const uint32_t slices = is_cpu ? 8 : 16, teams = is_cpu ? 1 : 8, rows_each = 2, num_tokens = e.list().num_tokens;
  const uint32_t groups_most = is_cpu ? e.setting().target.tuning.attention_cpu_groups
                                      : e.traits().num_cores * e.setting().target.tuning.attention_groups_core;
  const uint32_t kv_dtype = kv_constant(pool.group.dtype), out_dtype = static_cast<uint32_t>(e.desc(op.out).dtype);
  const Kernel kernel = make_kernel<LatentAttentionKernel>(slices * teams, {.head_dim = op.rank,
                                                                            .kv_dtype = kv_dtype,
                                                                            .out_dtype = out_dtype,
                                                                            .soft_cap = 0,
                                                                            .sinks = 0,
                                                                            .row_dim = op.row_dim(),
                                                                            .slices = slices,
                                                                            .teams = teams,
                                                                            .rows_each = rows_each,
                                                                            .tile_keys = is_cpu ? 2u : 8u});
  const View reads[] = {query, data, scales, tables}, writes[] = {out, res.partials};
  const auto attend = [&](const ItemLists& lists, uint32_t items, uint32_t item_tokens, bool claims) {
    const Groups groups{std::clamp(items, 1u, std::max(groups_most, 1u)),
                        ceil_div(item_tokens * op.num_heads, teams * rows_each)};
    e.launch({kernel, groups}, PushBytes(push_of(lists)), reads, std::span(writes).first(claims ? 2 : 0));
  };
  // Items of prompts and of rows that decode write different rows and different partial results.
  const bool has_prompts = !e.list().decode_only;
  if (has_prompts)
    attend(kPromptItems, ceil_div(num_tokens, kPromptItemTokens) * 2, std::min(kPromptItemTokens, num_tokens), true);
  attend(kDecodeItems, num_tokens * 4, 1, !has_prompts);
  const KernelChoice merge{make_kernel<PagedAttentionMergeKernel>(is_cpu ? 8 : 64, {.head_dim = op.rank,
                                                                                    .kv_dtype = kv_dtype,
                                                                                    .out_dtype = out_dtype,
                                                                                    .soft_cap = 0,
                                                                                    .sinks = 0,
                                                                                    .prompt_only = 0}),
                           {std::min(num_tokens, std::max(groups_most / op.num_heads, 1u)), op.num_heads}};
  const View merge_reads[] = {res.partials}, merge_writes[] = {out};
  e.launch(merge, PushBytes(push_of(kMergeItems)), merge_reads, merge_writes);
  return {};
}

}  // namespace llmrt::vulkan
