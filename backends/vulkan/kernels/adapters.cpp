// adapter_shrink, adapter_expand.
#include "backends/vulkan/kernels/adapters.h"

#include <algorithm>

#include "backends/vulkan/emitter.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

static_assert(kFwdAdapterItems == kFwdNumAdapterItems + 1 && kFwdAdapterRows == kFwdNumAdapterItems + 2);
static_assert(kSmpAdapterItems == kSmpNumAdapterItems + 1 && kSmpAdapterRows == kSmpNumAdapterItems + 2);
static_assert(sizeof(AdapterEntry) == 20 * 4 && sizeof(AdapterItem) == 4 * 4 && sizeof(AdapterRow) == 2 * 4);

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

}  // namespace llmrt::vulkan
