// Shapes and dtypes of recurrent ops.
#include "core/backend/validating_shapes.h"

namespace llmrt::validating {
namespace {

struct RecurrentChecker : ShapeHelpers {
  // [T, at least first + columns] f32.
  void columns(const char* field, const Columns& part, uint64_t count) {
    const TensorDesc& t = desc(part.tensor);
    f32(field, part.tensor, Rows::kTokens, kAnyColumns);
    report.at_most(where, fmt::format("{}: columns", field), part.first + count, uint64_t{t.columns});
  }
  void state(const StatePart& part, uint64_t numbers) {
    if (!report.below(where, "kv_group", part.kv_group, limits.groups.size())) return;
    const KvGroup& group = limits.groups[part.kv_group];
    if (!group.is_state()) return report.fail(where, "kv_group", "a group of states", "one of blocks");
    report.below(where, "layer", part.layer, group.num_layers);
    if (part.first % 4 != 0) report.fail(where, "state_first", "a multiple of 4", part.first);
    if (group.state_columns % 4 != 0) report.fail(where, "state_columns", "a multiple of 4", group.state_columns);
    report.at_most(where, "state", part.first + numbers, uint64_t{group.state_columns});
  }
  void ring_tokens(const StatePart& part) {
    if (part.ring_tokens != 0 && part.ring_tokens != kRingTokens)
      report.fail(where, "ring_tokens", fmt::format("0 or {}", kRingTokens), part.ring_tokens);
  }
  void state_dim(const char* field, uint32_t dim) {
    if (dim == 0 || dim % 4 != 0 || dim > kStateDimMax)
      report.fail(where, field, fmt::format("a multiple of 4 up to {}", kStateDimMax), dim);
  }
  void multiple_of(const char* field, uint32_t heads, uint32_t shared) {
    if (shared == 0 || heads == 0 || heads % std::max(shared, 1u) != 0)
      report.fail(where, field, fmt::format("a multiple of {}", shared), heads);
  }
  void check_op(const CausalConv& op) {
    const uint32_t channels = desc(op.out).columns;
    if (op.x.tensor == kNoTensor) return report.fail(where, "x", "a tensor", "none");
    columns("x", op.x, channels);
    if (op.gate_in.tensor != kNoTensor) columns("gate_in", op.gate_in, channels);
    if (op.gate_out.tensor != kNoTensor) columns("gate_out", op.gate_out, channels);
    if (op.width < 2 || op.width > kConvWidthMax)
      return report.fail(where, "width", fmt::format("2 to {}", kConvWidthMax), op.width);
    const WeightTensor& weight = limits.weights.tensors[static_cast<size_t>(op.weight)];
    if (weight.encoding != Encoding::kF32 || weight.rows != channels || weight.columns != op.width)
      report.fail(where, "weight", fmt::format("[{}, {}] f32", channels, op.width),
                  fmt::format("[{}, {}] {}", weight.rows, weight.columns, encoding_name(weight.encoding)));
    if (op.bias >= 0) f32_vector("bias", op.bias, channels);
    any_float("out", op.out, Rows::kTokens, kAnyColumns);
    if (op.state.ring_tokens != 0) report.fail(where, "ring_tokens", 0, op.state.ring_tokens);
    state(op.state, state_numbers(channels, op));
  }
  void check_op(const GatedDelta& op) {
    if (op.qkv.tensor == kNoTensor || op.alpha.tensor == kNoTensor || op.beta.tensor == kNoTensor)
      return report.fail(where, "qkv, alpha, beta", "tensors", "none");
    state_dim("key_dim", op.key_dim);
    state_dim("value_dim", op.value_dim);
    multiple_of("value_heads", op.value_heads, op.key_heads);
    if (!report.ok()) return;
    columns("qkv", op.qkv, 2ull * op.key_heads * op.key_dim + uint64_t{op.value_heads} * op.value_dim);
    const uint64_t between = op.gates_in_turn ? op.value_heads - op.value_heads / op.key_heads : 0;
    columns("alpha", op.alpha, op.value_heads + between);
    columns("beta", op.beta, op.value_heads + between);
    if (op.gates_in_turn && op.order != KeyHeadOrder::kDivided)
      report.fail(where, "order", "divided with gates_in_turn", "modulo");
    f32_vector("a", op.a, op.value_heads);
    f32_vector("dt_bias", op.dt_bias, op.value_heads);
    f32("out", op.out, Rows::kTokens, op.value_heads * op.value_dim);
    ring_tokens(op.state);
    state(op.state, state_numbers(op));
  }
  void check_op(const SelectiveScan& op) {
    for (const Columns& part : {op.x, op.b, op.c, op.dt})
      if (part.tensor == kNoTensor) return report.fail(where, "x, b, c, dt", "tensors", "none");
    state_dim("state_dim", op.state_dim);
    state_dim("head_dim", op.head_dim);
    multiple_of("num_heads", op.num_heads, op.num_groups);
    if (!report.ok()) return;
    columns("x", op.x, uint64_t{op.num_heads} * op.head_dim);
    columns("b", op.b, uint64_t{op.num_groups} * op.state_dim);
    columns("c", op.c, uint64_t{op.num_groups} * op.state_dim);
    columns("dt", op.dt, op.num_heads);
    f32_vector("dt_bias", op.dt_bias, op.num_heads);
    f32_vector("a", op.a, op.num_heads);
    if (op.d >= 0) f32_vector("d", op.d, op.num_heads);
    if (!(op.dt_min >= 0 && op.dt_min <= op.dt_max))
      report.fail(where, "dt_min", fmt::format("0 to {}", op.dt_max), op.dt_min);
    f32("out", op.out, Rows::kTokens, op.num_heads * op.head_dim);
    ring_tokens(op.state);
    state(op.state, state_numbers(op));
  }
  void check_op(const GatedNorm& op) {
    const uint32_t num_columns = desc(op.x).columns;
    if (op.gate.tensor == kNoTensor) return report.fail(where, "gate", "a tensor", "none");
    f32("x", op.x, Rows::kTokens, kAnyColumns);
    columns("gate", op.gate, num_columns);
    any_float("out", op.out, Rows::kTokens, num_columns);
    if (op.group_columns == 0 || num_columns % std::max(op.group_columns, 1u) != 0)
      return report.fail(where, "group_columns", fmt::format("a part of {}", num_columns), op.group_columns);
    const WeightTensor& weight = limits.weights.tensors[static_cast<size_t>(op.weight)];
    f32_vector("weight", op.weight, weight.columns == op.group_columns ? op.group_columns : num_columns);
  }
};

}  // namespace

void check(ShapeHelpers& shapes, const CausalConv& op) {
  RecurrentChecker{shapes}.check_op(op);
}
void check(ShapeHelpers& shapes, const GatedDelta& op) {
  RecurrentChecker{shapes}.check_op(op);
}
void check(ShapeHelpers& shapes, const SelectiveScan& op) {
  RecurrentChecker{shapes}.check_op(op);
}
void check(ShapeHelpers& shapes, const GatedNorm& op) {
  RecurrentChecker{shapes}.check_op(op);
}

}  // namespace llmrt::validating
