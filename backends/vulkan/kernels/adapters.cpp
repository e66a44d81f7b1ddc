// adapter_shrink, adapter_expand, expert_shrink, expert_term, expert_expand.
#include "backends/vulkan/kernels/adapters.h"

#include <algorithm>

#include "backends/vulkan/emitter.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

static_assert(kFwdAdapterItems == kFwdNumAdapterItems + 1 && kFwdAdapterRows == kFwdNumAdapterItems + 2);
static_assert(kSmpAdapterItems == kSmpNumAdapterItems + 1 && kSmpAdapterRows == kSmpNumAdapterItems + 2);
static_assert(sizeof(AdapterEntry) == 28 * 4 && sizeof(AdapterItem) == 4 * 4 && sizeof(AdapterRow) == 2 * 4);

Status check_pool(const Emitter& e, const char* op) {
  if (e.resources().adapters.bytes > 0) return {};
  return make_error(ErrorCode::kInvalidArgument, "vulkan: {}: expected a pool of adapters, found none", op);
}

// How an item's rows are dealt to groups: one that reads A or B for several rows reads it less often. The order of sums
// is the same for all, but compilers may contract one kernel's otherwise: batch-invariant lists have the same kernel.
struct ItemGrid {
  uint32_t cols = 1;
  Groups groups;
};
ItemGrid item_grid(const Emitter& e, TensorId rows_of, uint32_t groups_x) {
  const uint32_t rows = e.list().rows_of(rows_of);
  ItemGrid grid;
  const bool one_kernel = e.list().batch_invariant || e.traits().cpu_kernels;
  grid.cols = one_kernel ? 4 : rows == 1 ? 1 : rows <= 32 ? 4 : 8;
  // The most items that inputs may have, and the most rows of one.
  grid.groups = {groups_x, std::min(rows, kAdapterSlotsMax + rows / kAdapterItemRows),
                 ceil_div(std::min(rows, kAdapterItemRows), grid.cols)};
  return grid;
}

struct ItemInputs {
  View inputs;
  uint32_t header;
};
ItemInputs item_inputs(const Emitter& e, TensorId x) {
  if (e.desc(x).rows == Rows::kTokens) return {e.resources().forward_inputs, kFwdNumAdapterItems};
  return {e.resources().sample_inputs, kSmpNumAdapterItems};
}

// Items of the list's own rows, one row a group.
Groups row_grid(const Emitter& e, TensorId ids, uint32_t groups_x) {
  const uint32_t rows = e.list().rows_of(ids) / e.list().routed_per_row;
  return {groups_x, std::min(rows, kAdapterSlotsMax + rows / kAdapterItemRows), std::min(rows, kAdapterItemRows)};
}

ItemInputs list_inputs(const Emitter& e) {
  if (e.list().num_sampled == 0) return {e.resources().forward_inputs, kFwdNumAdapterItems};
  return {e.resources().sample_inputs, kSmpNumAdapterItems};
}

// What a dispatch of expert_expand reads and writes, and its grid's x.
struct ExpertExpansion {
  ExpertExpandKernel::Mode mode;
  int32_t group;
  TensorId y, ids, out;
  View weights;  // of kJoin
};
void emit_expansion(Emitter& e, const ExpertExpansion& what) {
  using Kernels = ExpertExpandKernel;
  const uint32_t per_row = e.list().routed_per_row, columns = e.desc(what.out).columns;
  const ItemInputs items = list_inputs(e);
  const View y = e.tensor(what.y), ids = e.tensor(what.ids), out = e.tensor(what.out), pool = e.resources().adapters;
  const View weights = what.mode == Kernels::kJoin ? what.weights : y;
  const Kernels::Push push{.pool = pool,
                           .y = y,
                           .result = out,
                           .weights = weights,
                           .inputs = items.inputs,
                           .ids = ids,
                           .count = e.live_count(what.out),
                           .y_columns = e.desc(what.y).columns,
                           .result_columns = columns,
                           .group = static_cast<uint32_t>(what.group),
                           .num_groups = static_cast<uint32_t>(e.weights().groups.size()),
                           .header = items.header,
                           .per_row = per_row};
  const uint32_t group_size = e.traits().cpu_kernels ? 8 : 64;
  const uint32_t groups_x = ceil_div(columns * (what.mode == Kernels::kJoin ? 1 : per_row), group_size);
  const Groups grid = what.mode == Kernels::kClear ? Groups{groups_x, e.list().rows_of(what.ids) / per_row}
                                                   : row_grid(e, what.ids, groups_x);
  const Kernel kernel = make_kernel<Kernels>(
      group_size, {.pool_dtype = static_cast<uint32_t>(e.resources().adapter_dtype), .mode = what.mode});
  const View reads[] = {y, ids, weights, out, pool}, writes[] = {out};
  e.launch({kernel, grid}, PushBytes(push), what.mode == Kernels::kClear ? std::span<const View>() : reads, writes);
}

}  // namespace

Status emit(Emitter& e, const AdapterShrink& op) {
  if (Status status = check_pool(e, "adapter_shrink"); !status) return status;
  const Traits& traits = e.traits();
  const TensorDesc &x = e.desc(op.x), &y = e.desc(op.y);
  const ItemInputs items = item_inputs(e, op.x);
  const View x_view = e.tensor(op.x), y_view = e.tensor(op.y), pool = e.resources().adapters;
  const AdapterShrinkKernel::Push push{.pool = pool,
                                       .x = x_view,
                                       .result = y_view,
                                       .inputs = items.inputs,
                                       .columns = x.columns,
                                       .result_columns = y.columns,
                                       .group = static_cast<uint32_t>(op.group),
                                       .num_groups = static_cast<uint32_t>(e.weights().groups.size()),
                                       .header = items.header};
  constexpr uint32_t kRanks = 4;
  const uint32_t group_size = traits.cpu_kernels ? 8 : 128;
  const ItemGrid grid = item_grid(e, op.x, ceil_div(y.columns, kRanks));
  const Kernel kernel = make_kernel<AdapterShrinkKernel>(
      group_size, {.x_dtype = static_cast<uint32_t>(x.dtype),
                   .pool_dtype = static_cast<uint32_t>(e.resources().adapter_dtype),
                   .ranks = kRanks,
                   .cols = grid.cols,
                   .parts = std::max(group_size / std::max(traits.subgroup_size, 1u), 1u)});
  const View reads[] = {x_view, pool}, writes[] = {y_view};
  e.launch({kernel, grid.groups}, PushBytes(push), reads, writes);
  return {};
}

Status emit(Emitter& e, const AdapterExpand& op) {
  if (Status status = check_pool(e, "adapter_expand"); !status) return status;
  const TensorDesc &y = e.desc(op.y), &out = e.desc(op.out);
  const ItemInputs items = item_inputs(e, op.y);
  const View y_view = e.tensor(op.y), out_view = e.tensor(op.out), pool = e.resources().adapters;
  const AdapterExpandKernel::Push push{.pool = pool,
                                       .y = y_view,
                                       .result = out_view,
                                       .inputs = items.inputs,
                                       .y_columns = y.columns,
                                       .result_columns = out.columns,
                                       .group = static_cast<uint32_t>(op.group),
                                       .num_groups = static_cast<uint32_t>(e.weights().groups.size()),
                                       .header = items.header};
  const uint32_t group_size = e.traits().cpu_kernels ? 8 : 64;
  const ItemGrid grid = item_grid(e, op.y, ceil_div(out.columns, group_size));
  const Kernel kernel = make_kernel<AdapterExpandKernel>(
      group_size, {.pool_dtype = static_cast<uint32_t>(e.resources().adapter_dtype), .cols = grid.cols});
  const View reads[] = {y_view, out_view, pool}, writes[] = {out_view};
  e.launch({kernel, grid.groups}, PushBytes(push), reads, writes);
  return {};
}

Status emit(Emitter& e, const ExpertShrink& op) {
  if (Status status = check_pool(e, "expert_shrink"); !status) return status;
  const Traits& traits = e.traits();
  const TensorDesc &x = e.desc(op.x), &y = e.desc(op.y);
  const ItemInputs items = list_inputs(e);
  const uint32_t per_row = e.list().routed_per_row;
  const View x_view = e.tensor(op.x), y_view = e.tensor(op.y), ids = e.tensor(op.ids), pool = e.resources().adapters;
  const ExpertShrinkKernel::Push push{.pool = pool,
                                      .x = x_view,
                                      .result = y_view,
                                      .inputs = items.inputs,
                                      .ids = ids,
                                      .columns = x.columns,
                                      .result_columns = y.columns,
                                      .group = static_cast<uint32_t>(op.group),
                                      .num_groups = static_cast<uint32_t>(e.weights().groups.size()),
                                      .header = items.header,
                                      .per_row = per_row,
                                      .x_per_row = x.rows == Rows::kRouted ? 1 : per_row};
  constexpr uint32_t kRanks = 8;
  const uint32_t group_size = traits.cpu_kernels ? 8 : 64;
  const Kernel kernel = make_kernel<ExpertShrinkKernel>(
      group_size, {.x_dtype = static_cast<uint32_t>(x.dtype),
                   .pool_dtype = static_cast<uint32_t>(e.resources().adapter_dtype),
                   .ranks = kRanks,
                   .parts = std::max(group_size / std::max(traits.subgroup_size, 1u), 1u)});
  const View reads[] = {x_view, ids, pool}, writes[] = {y_view};
  e.launch({kernel, row_grid(e, op.ids, ceil_div(y.columns, kRanks) * per_row)}, PushBytes(push), reads, writes);
  return {};
}

Status emit(Emitter& e, const ExpertTerm& op) {
  if (Status status = check_pool(e, "expert_term"); !status) return status;
  for (const auto mode : {ExpertExpandKernel::kClear, ExpertExpandKernel::kTerm})
    emit_expansion(e, {mode, op.group, op.y, op.ids, op.out, {}});
  return {};
}

Status emit(Emitter& e, const ExpertExpand& op) {
  if (Status status = check_pool(e, "expert_expand"); !status) return status;
  emit_expansion(e, {ExpertExpandKernel::kJoin, op.group, op.y, op.ids, op.out, e.tensor(op.weights)});
  return {};
}

}  // namespace llmrt::vulkan
