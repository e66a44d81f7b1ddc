// Which kernels multiply by experts, for which rows and weights. Launches that need much scratch are cut: into runs of
// rows, and of ExpertDown's many rows into slices of outputs.
//
// The workspace: the order of routed rows by expert, then x in that order, then partial products; each where it is.
#include <fmt/format.h>

#include <algorithm>

#include "backends/cuda/choose.h"
#include "backends/cuda/ops/experts.h"
#include "backends/cuda/weights.h"

namespace llmrt::cuda {
namespace {

const DeviceGroup& experts_of(WeightGroupId group, std::span<const DeviceGroup> groups) {
  return groups[static_cast<size_t>(group)];
}
const TensorDesc& described(TensorId id, const OpList& list) {
  return list.tensors[static_cast<size_t>(id)];
}

// ---- what kernels get ----------------------------------------------------------------------------------------------

// The matrices of a stack: gates and other halves, by two runs where they differ in encoding. Null: neither.
struct Stack {
  const GroupRun *gate = nullptr, *up = nullptr;
};
Stack stack_of(const ExpertGateUp& op, const DeviceGroup& group) {
  const auto& runs = group.runs;
  if (!has_other_half(op.activation) && group.rows / op.num_experts % 2 != 0) return {};
  if (runs.size() == 1) return {runs.data(), runs.data()};
  if (has_other_half(op.activation) && !op.by_expert && runs.size() == 2 && runs[1].out_column == group.rows / 2)
    return {runs.data(), runs.data() + 1};
  return {};
}

// Pairs of products: an output each, or two where the activation has no other half.
uint32_t outs_of(const ExpertGateUp& op, const OpList& list) {
  return described(op.out, list).columns / (has_other_half(op.activation) ? 1 : 2);
}

// Rows [rows.begin, + rows.count) of the list.
struct RowRun {
  uint32_t begin = 0, count = 0;
};

ExpertArgs args_of(const ExpertGateUp& op, const RowRun& rows, const OpContext& at) {
  const DeviceGroup& group = at.weights->group(op.group);
  const Stack stack = stack_of(op, group);
  ExpertArgs args;
  args.outs = outs_of(op, *at.list);
  const bool by_expert = op.by_expert || !has_other_half(op.activation);
  const uint32_t up_row = by_expert ? args.outs : op.num_experts * args.outs;
  args.gate = stack.gate->matrix;
  args.up = stack.up == stack.gate ? stack.up->matrix.slice(up_row, stack.up->matrix.rows - up_row) : stack.up->matrix;
  args.gate_bias = group.bias;
  args.up_bias = group.bias ? group.bias + up_row : nullptr;
  args.stride = by_expert ? 2 * args.outs : args.outs;
  args.num_experts = op.num_experts;
  args.per_row = at.list->routed_per_row;
  const uint64_t routed = uint64_t{rows.begin} * args.per_row;
  args.x = at.tensor<float>(op.x) + uint64_t{rows.begin} * group.columns;
  args.ids = at.tensor<int32_t>(op.ids) + routed;
  args.out = at.bytes(op.out) + routed * at.desc(op.out).columns * dtype_bytes(at.desc(op.out).dtype);
  if (op.term != kNoTensor) args.term = at.tensor<float>(op.term) + routed * at.desc(op.term).columns;
  args.activation = op.activation;
  args.live = at.live(op.x);
  args.row_begin = rows.begin;
  args.row_count = rows.count;
  return args;
}

ExpertArgs args_of(const ExpertDown& op, const RowRun& rows, const OpContext& at) {
  const DeviceGroup& group = at.weights->group(op.group);
  ExpertArgs args;
  args.gate = group.runs[0].matrix;
  args.gate_bias = group.bias;
  args.stride = args.outs = at.desc(op.out).columns;
  args.num_experts = op.num_experts;
  args.per_row = at.list->routed_per_row;
  const uint64_t routed = uint64_t{rows.begin} * args.per_row;
  args.x = at.bytes(op.x) + routed * group.columns * dtype_bytes(at.desc(op.x).dtype);
  args.ids = at.tensor<int32_t>(op.ids) + routed;
  args.weights = at.tensor<float>(op.weights) + routed;
  args.out = at.tensor<float>(op.out) + uint64_t{rows.begin} * args.outs;
  args.live = at.live(op.out);
  args.row_begin = rows.begin;
  args.row_count = rows.count;
  return args;
}

// ExpertDown's outputs [begin, + count), which are partial products in the workspace.
void make_partials(const ExpertChoice& choice, std::byte* partials, ExpertArgs* args) {
  args->gate = args->gate.slice(choice.out_begin, args->gate.rows - choice.out_begin);
  if (args->gate_bias) args->gate_bias += choice.out_begin;
  args->outs = choice.out_count;
  args->out = partials;
}

// ---- launches ------------------------------------------------------------------------------------------------------

// Where scratch begins in the workspace.
struct Scratch {
  uint64_t x = 0, partials = 0;
};

// What is the same for all launches of an op.
template <class Op>
struct Expert {
  const Op& op;
  const CompileInputs& inputs;
  Launches* out;

  // start(choice, args, at) with the order of routed rows, which may not be there.
  void add(ExpertChoice choice, const RowRun& rows, auto start) const {
    add_launch(out, std::move(choice), [op = op, rows, start](const ExpertChoice& c, const OpContext& at) -> Status {
      ExpertArgs args = args_of(op, rows, at);
      if (c.is_ordered) {
        args.offsets = reinterpret_cast<const uint32_t*>(at.workspace.data);
        args.order = args.offsets + args.num_experts + 1;
      }
      return start(c, args, at);
    });
  }

  void add_exact(const ExpertShape& shape, DType math) const {
    ExpertChoice choice;
    choice.kernel = "experts_exact";
    choice.is_gated = shape.is_gated;
    choice.variant = shape.is_gated ? "gate up" : "down";
    lay_out_experts_exact(shape, &choice);
    add(choice, {0, shape.num_rows}, [math](const ExpertChoice& c, const ExpertArgs& args, const OpContext& at) {
      return experts_exact(c, args, math, at);
    });
  }

  void add_order(const ExpertShape& shape, const RowRun& rows, bool copies_x, const Scratch& scratch) const {
    ExpertChoice choice;
    choice.kernel = "order_experts";
    choice.variant = copies_x ? "and x" : "";
    choice.is_gated = shape.is_gated;
    choice.is_ordered = true;
    choice.copies_x = copies_x;
    choice.workspace_bytes = copies_x ? scratch.partials : scratch.x;
    lay_out_order(shape, &choice);
    add(choice, rows, [scratch](const ExpertChoice& c, const ExpertArgs& args, const OpContext& at) {
      return order_experts(c, args, at.workspace.data + scratch.x, at);
    });
  }

  void add_sum(const ExpertShape& shape, const RowRun& rows, uint32_t out_begin, uint32_t out_count,
               const Scratch& scratch) const {
    ExpertChoice choice;
    choice.kernel = "sum_experts";
    choice.out_begin = out_begin;
    choice.out_count = out_count;
    lay_out_sum(shape, &choice);
    add(choice, rows, [scratch](const ExpertChoice& c, const ExpertArgs& args, const OpContext& at) {
      return sum_experts(c, reinterpret_cast<const float*>(at.workspace.data + scratch.partials), args, at);
    });
  }

  // fn(shape of the run, rows, bytes that are left for partial products) for runs of rows whose scratch, `fixed` bytes
  // and `row_bytes` a row, fits the workspace.
  Status each_run(const ExpertShape& shape, uint64_t fixed, uint64_t row_bytes, auto fn) const {
    const uint64_t room = inputs.workspace_bytes > fixed ? inputs.workspace_bytes - fixed : 0;
    const uint32_t fit =
        static_cast<uint32_t>(std::min<uint64_t>(room / std::max(row_bytes, uint64_t{1}), shape.num_rows));
    if (fit == 0)
      return make_error(ErrorCode::kOutOfMemory, "experts: {} bytes of scratch for a row pass the workspace of {}",
                        fixed + row_bytes, inputs.workspace_bytes);
    const uint32_t count = ceil_div(shape.num_rows, ceil_div(shape.num_rows, fit));
    for (uint32_t begin = 0; begin < shape.num_rows; begin += count) {
      ExpertShape run = shape;
      run.num_rows = std::min(count, shape.num_rows - begin);
      fn(run, RowRun{begin, run.num_rows});
    }
    return {};
  }
  // The order, rounded up, without what grows with the rows.
  static uint64_t fixed_bytes(const ExpertShape& shape) { return (uint64_t{shape.num_experts} + 1 + 2 * 64) * 4; }

  // Few rows an expert, or a device without warpgroups.
  Status add_rows(const ExpertShape& shape) const {
    const uint64_t row_bytes = uint64_t{shape.per_row} * (4 + (shape.is_gated ? 0 : uint64_t{shape.outs} * 4));
    return each_run(shape, fixed_bytes(shape), row_bytes, [&](const ExpertShape& run, const RowRun& rows) {
      ExpertChoice choice;
      choice.kernel = "experts_rows";
      choice.is_gated = shape.is_gated;
      choice.is_ordered = run.num_rows * run.per_row > inputs.tuning.expert_scan_max;
      choice.out_count = shape.outs;
      lay_out_experts_rows(run, inputs, &choice);
      choice.variant = fmt::format("{} {} rows={} splits={} rounds={}", encoding_name(shape.encoding),
                                   shape.is_gated ? "gate up" : "down", choice.rows_max, choice.splits, choice.rounds);
      Scratch scratch;
      scratch.x = scratch.partials = choice.is_ordered ? order_bytes(run) : 0;
      if (choice.is_ordered) add_order(run, rows, false, scratch);
      if (!shape.is_gated) choice.workspace_bytes = uint64_t{run.num_rows} * run.per_row * shape.outs * 4;
      add(choice, rows, [scratch](const ExpertChoice& c, ExpertArgs args, const OpContext& at) {
        if (!c.is_gated) make_partials(c, at.workspace.data + scratch.partials, &args);
        return experts_rows(c, args, at);
      });
      if (!shape.is_gated) add_sum(run, rows, 0, shape.outs, scratch);
    });
  }

  // Many rows an expert, by warpgroups.
  Status add_tiles(const ExpertShape& shape) const {
    constexpr uint32_t kSliceOuts = 128;  // a slice is a multiple of this
    const uint64_t x_row_bytes = uint64_t{shape.per_row} * (4 + uint64_t{shape.columns} * 2);
    const uint64_t least = uint64_t{shape.per_row} * std::min(shape.outs, 4 * kSliceOuts) * 4;
    return each_run(
        shape, fixed_bytes(shape) + 256, x_row_bytes + (shape.is_gated ? 0 : least),
        [&](const ExpertShape& run, const RowRun& rows) {
          Scratch scratch;
          const uint64_t routed = uint64_t{run.num_rows} * run.per_row;
          scratch.x = order_bytes(run);
          scratch.partials = round_up(scratch.x + routed * run.columns * 2, uint64_t{256});
          add_order(run, rows, true, scratch);
          const uint64_t fit = (inputs.workspace_bytes - scratch.partials) / (routed * 4) / kSliceOuts * kSliceOuts;
          const uint32_t slices =
              shape.is_gated
                  ? 1
                  : ceil_div(shape.outs, static_cast<uint32_t>(std::clamp<uint64_t>(fit, kSliceOuts, 1 << 20)));
          const uint32_t count = round_up(ceil_div(shape.outs, slices), kSliceOuts);
          for (uint32_t begin = 0; begin < shape.outs; begin += count) {
            add_tile_slice(run, rows, begin, std::min(count, shape.outs - begin), scratch);
            if (!shape.is_gated) add_sum(run, rows, begin, std::min(count, shape.outs - begin), scratch);
          }
        });
  }
  void add_tile_slice(const ExpertShape& shape, const RowRun& rows, uint32_t begin, uint32_t count,
                      const Scratch& scratch) const {
    ExpertChoice choice;
    choice.kernel = "experts_tiles";
    choice.is_gated = shape.is_gated;
    choice.is_ordered = true;
    const double mean = rows_an_expert(shape);
    choice.tile_rows = mean <= inputs.tuning.expert_narrow_rows_max ? 64
                       : mean < inputs.tuning.expert_wide_rows_min  ? 128
                                                                    : 256;
    choice.out_begin = begin;
    choice.out_count = count;
    lay_out_experts_tiles(shape, inputs, &choice);
    choice.variant = fmt::format("{} {} rows={}", encoding_name(shape.encoding), shape.is_gated ? "gate up" : "down",
                                 choice.tile_rows);
    if (!shape.is_gated) choice.workspace_bytes = uint64_t{shape.num_rows} * shape.per_row * count * 4;
    add(choice, rows, [scratch](const ExpertChoice& c, ExpertArgs args, const OpContext& at) {
      if (!c.is_gated) make_partials(c, at.workspace.data + scratch.partials, &args);
      return experts_tiles(c, args, at.workspace.data + scratch.x, at);
    });
  }

  Status add_products(const ExpertShape& shape) const {
    const bool is_many =
        inputs.device.has_warpgroups && !shape.batch_invariant &&
        rows_an_expert(shape) >= std::min(inputs.tuning.expert_tiles_rows_min, experts_rows_max(shape, inputs));
    return is_many ? add_tiles(shape) : add_rows(shape);
  }
};

ExpertShape shape_of(const GroupRun& run, TensorId rows, TensorId out, uint32_t num_experts, const OpList& list) {
  ExpertShape shape;
  shape.encoding = run.matrix.encoding;
  shape.columns = run.matrix.columns;
  shape.outs = described(out, list).columns;
  shape.num_experts = num_experts;
  shape.per_row = list.routed_per_row;
  shape.num_rows = list.rows_of(rows);
  shape.batch_invariant = list.batch_invariant;
  return shape;
}

bool multiplies_f16(const PackedMatrix& matrix, DType math) {
  return math == DType::kF16 && matrix.multiplies_in_f16() && matrix.columns % 8 == 0;
}

}  // namespace

Status choose(const ExpertGateUp& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  const DeviceGroup& group = experts_of(op.group, inputs.groups);
  const Stack stack = stack_of(op, group);
  if (!stack.gate)
    return make_error(
        ErrorCode::kUnsupported,
        "expert_gate_up: group {}: expected gates and other halves of one encoding each, or an even number "
        "of rows an expert, found {} rows in {} runs",
        op.group, group.rows, group.runs.size());
  ExpertShape shape = shape_of(*stack.gate, op.x, op.out, op.num_experts, list);
  shape.outs = outs_of(op, list);
  shape.is_gated = true;
  const DType math = described(op.out, list).dtype;
  const Expert<ExpertGateUp> expert{op, inputs, out};
  const bool is_one_encoding = stack.up->matrix.encoding == shape.encoding;
  if (is_one_encoding && multiplies_f16(stack.gate->matrix, math) && multiplies_f16(stack.up->matrix, math))
    return expert.add_products(shape);
  expert.add_exact(shape, math);
  return {};
}

Status choose(const ExpertDown& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  const DeviceGroup& group = experts_of(op.group, inputs.groups);
  if (group.runs.size() != 1)
    return make_error(ErrorCode::kUnsupported,
                      "expert_down: group {}: expected matrices of one encoding, found {} runs", op.group,
                      group.runs.size());
  const ExpertShape shape = shape_of(group.runs[0], op.out, op.out, op.num_experts, list);
  const DType math = described(op.x, list).dtype;
  const Expert<ExpertDown> expert{op, inputs, out};
  if (!multiplies_f16(group.runs[0].matrix, math)) {
    expert.add_exact(shape, math);
    return {};
  }
  ExpertChoice choice;
  if (shape.batch_invariant || shape.num_rows > inputs.tuning.expert_joined_rows_max ||
      !lay_out_experts_joined(shape, inputs, &choice))
    return expert.add_products(shape);
  choice.kernel = "experts_joined";
  choice.variant = encoding_name(shape.encoding);
  expert.add(choice, {0, shape.num_rows}, experts_joined);
  return {};
}

}  // namespace llmrt::cuda
