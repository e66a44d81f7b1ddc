// Op lists: ids, dtypes, shapes, order of writes and reads, sizes.
#include <cmath>
#include <set>

#include "core/backend/validating_checks.h"
#include "core/ops/op_fields.h"

namespace llmrt::validating {
namespace {

constexpr uint32_t kAnyColumns = ~0u;

std::string shape_text(Rows rows, uint32_t columns, const std::string& dtype) {
  return fmt::format("[{}, {}] {}", rows_name(rows), columns == kAnyColumns ? "any" : std::to_string(columns), dtype);
}

// Visits the fields of an op: are its ids in range, and is nothing read before it was written?
struct FieldChecker {
  const Limits& limits;
  const OpList& list;
  const std::string& where;
  Report& report;
  std::vector<bool>& written;
  std::vector<TensorId> reads, writes;

  bool known(const char* name, TensorId id) { return report.below(where, name, id, list.tensors.size()); }
  void read(const char* name, TensorId id) {
    if (known(name, id) && !written[static_cast<size_t>(id)])
      report.fail(where, name, "a tensor that was written before", list.tensors[static_cast<size_t>(id)].name);
    reads.push_back(id);
  }
  void in(const char* name, TensorId id) { read(name, id); }
  void out(const char* name, TensorId id) {
    if (known(name, id) && std::find(reads.begin(), reads.end(), id) != reads.end())
      report.fail(where, name, "not a tensor that the op reads", list.tensors[static_cast<size_t>(id)].name);
    writes.push_back(id);
  }
  void inout(const char* name, TensorId id) {
    read(name, id);
    writes.push_back(id);
  }
  void weight(const char* name, int32_t id) { report.below(where, name, id, limits.weights.tensors.size()); }
  void group(const char* name, int32_t id) { report.below(where, name, id, limits.weights.groups.size()); }
  template <class T>
  void value(const char* name, T number) {
    if (!std::isfinite(static_cast<double>(number))) report.fail(where, name, "a finite number", number);
  }
};

// Visits ops whose ids are in range: shapes and dtypes.
struct ShapeChecker {
  const Limits& limits;
  const OpList& list;
  const std::string& where;
  Report& report;

  const TensorDesc& desc(TensorId id) const { return list.tensors[static_cast<size_t>(id)]; }

  void tensor(const char* field, TensorId id, Rows rows, uint32_t columns, bool dtype_ok, const char* dtypes) {
    const TensorDesc& t = desc(id);
    if (t.rows != rows || (columns != kAnyColumns && t.columns != columns) || !dtype_ok)
      report.fail(where, field, shape_text(rows, columns, dtypes), shape_text(t.rows, t.columns, dtype_name(t.dtype)));
  }
  void f32(const char* field, TensorId id, Rows rows, uint32_t columns) {
    tensor(field, id, rows, columns, desc(id).dtype == DType::kF32, "f32");
  }
  void i32(const char* field, TensorId id, Rows rows, uint32_t columns) {
    tensor(field, id, rows, columns, desc(id).dtype == DType::kI32, "i32");
  }
  void any_float(const char* field, TensorId id, Rows rows, uint32_t columns) {
    tensor(field, id, rows, columns, desc(id).dtype != DType::kI32, "f32, f16 or bf16");
  }
  // For ops that take rows T or R: their kernels find the live count by the kind of the rows.
  void unrouted(const char* field, TensorId id) {
    if (desc(id).rows == Rows::kRouted) report.fail(where, field, "rows T or R", rows_name(Rows::kRouted));
  }
  void f32_vector(const char* field, int32_t weight, uint64_t columns) {
    const WeightTensor& w = limits.weights.tensors[static_cast<size_t>(weight)];
    if (w.encoding != Encoding::kF32 || w.rows != 1 || w.columns != columns)
      report.fail(where, field, fmt::format("[1, {}] f32", columns),
                  fmt::format("[{}, {}] {}", w.rows, w.columns, encoding_name(w.encoding)));
  }
  // Columns of a qkv tensor; the numbers of heads must divide. may_lack_keys: it may have q alone.
  template <class T>
  uint32_t qkv_columns(const T& op, bool may_lack_keys) {
    if ((op.num_kv_heads == 0 && !may_lack_keys) || op.num_heads % std::max(op.num_kv_heads, 1u) != 0 ||
        op.num_heads == 0)
      report.fail(where, "num_heads", fmt::format("a multiple of num_kv_heads {}", op.num_kv_heads), op.num_heads);
    if (op.head_dim == 0) report.fail(where, "head_dim", "at least 1", 0);
    return (op.num_heads + 2 * op.num_kv_heads) * op.head_dim;
  }
  template <class T>
  void kv(const T& op) {
    if (!report.below(where, "kv_group", op.kv_group, limits.groups.size())) return;
    const KvGroup& group = limits.groups[op.kv_group];
    if (group.is_state()) report.fail(where, "kv_group", "a group of blocks", "one of states");
    report.below(where, "layer", op.layer, group.num_layers);
    if (op.num_kv_heads != group.num_kv_heads) report.fail(where, "num_kv_heads", group.num_kv_heads, op.num_kv_heads);
    if (op.head_dim != group.head_dim) report.fail(where, "head_dim", group.head_dim, op.head_dim);
  }
  void logits(const char* field, TensorId id) {
    f32(field, id, Rows::kSampled, kAnyColumns);
    report.at_most(where, fmt::format("{} columns", field), desc(id).columns, limits.state.vocab_size);
  }

  void operator()(const UpdateRows&) {}
  void operator()(const PrepareRows& op) {
    i32("tokens", op.tokens, Rows::kTokens, 1);
    i32("positions", op.positions, Rows::kTokens, 1);
    i32("row_slots", op.row_slots, Rows::kTokens, 1);
    for (uint32_t g = 0; g < kKvGroupsMax; ++g) {
      if (op.kv_slots[g] == kNoTensor) continue;
      i32("kv_slots", op.kv_slots[g], Rows::kTokens, 1);
      report.below(where, "kv_slots: group", g, limits.state.num_kv_groups);
      if (g < limits.groups.size() && limits.groups[g].is_state())
        report.fail(where, "kv_slots: group", "one of blocks", "one of states");
    }
  }
  void operator()(const Embed& op) {
    const WeightTensor& weight = limits.weights.tensors[static_cast<size_t>(op.weight)];
    i32("tokens", op.tokens, Rows::kTokens, 1);
    f32("out", op.out, Rows::kTokens, static_cast<uint32_t>(weight.columns));
    if (weight.rows < limits.state.vocab_size)
      report.fail(where, "weight", fmt::format("at least {} rows", limits.state.vocab_size), weight.rows);
  }
  void operator()(const RmsNorm& op) {
    const TensorDesc& x = desc(op.x);
    unrouted("x", op.x);
    f32("x", op.x, x.rows, kAnyColumns);
    if (op.delta != kNoTensor) f32("delta", op.delta, x.rows, x.columns);
    f32_vector("weight", op.weight, x.columns);
    any_float("out", op.out, x.rows, x.columns);
  }
  void operator()(const Matmul& op) {
    const WeightGroup& group = limits.weights.groups[static_cast<size_t>(op.group)];
    unrouted("x", op.x);
    any_float("x", op.x, desc(op.x).rows, static_cast<uint32_t>(group.columns));
    f32("out", op.out, desc(op.x).rows, static_cast<uint32_t>(group.rows));
  }
  void operator()(const QkNorm& op) {
    f32("qkv", op.qkv, Rows::kTokens, qkv_columns(op, true));
    f32_vector("q_weight", op.q_weight, op.head_dim);
    f32_vector("k_weight", op.k_weight, op.head_dim);
    if (op.v_weight >= 0) f32_vector("v_weight", op.v_weight, op.head_dim);
  }
  void operator()(const JoinedQkNorm& op) {
    f32("qkv", op.qkv, Rows::kTokens, qkv_columns(op, true));
    f32_vector("q_weight", op.q_weight, uint64_t{op.num_heads} * op.head_dim);
    if (op.num_kv_heads > 0) f32_vector("k_weight", op.k_weight, uint64_t{op.num_kv_heads} * op.head_dim);
  }
  void operator()(const Rope& op) {
    f32("qkv", op.qkv, Rows::kTokens, qkv_columns(op, true));
    i32("positions", op.positions, Rows::kTokens, 1);
    f32_vector("freqs", op.freqs, op.rope_dim / 2);
    if (op.rope_dim % 2 != 0 || op.rope_dim > op.head_dim)
      report.fail(where, "rope_dim", fmt::format("even, at most {}", op.head_dim), op.rope_dim);
  }
  void operator()(const KvWrite& op) {
    f32("qkv", op.qkv, Rows::kTokens, qkv_columns(op, false));
    i32("kv_slots", op.kv_slots, Rows::kTokens, 1);
    kv(op);
  }
  void operator()(const PagedAttention& op) {
    const uint32_t columns = qkv_columns(op, false);
    f32("qkv", op.qkv, Rows::kTokens, op.queries_only ? op.num_heads * op.head_dim : columns);
    any_float("out", op.out, Rows::kTokens, op.num_heads * op.head_dim);
    if (op.sinks >= 0) f32_vector("sinks", op.sinks, op.num_heads);
    kv(op);
    report.at_most(where, "num_heads", op.num_heads, limits.state.heads_max);
    report.at_most(where, "head_dim", op.head_dim, limits.state.head_dim_max);
  }
  void operator()(const RunningSum& op) {
    if (!report.below(where, "kv_group", op.kv_group, limits.groups.size())) return;
    const KvGroup& group = limits.groups[op.kv_group];
    if (!group.is_state()) return report.fail(where, "kv_group", "a group of states", "one of blocks");
    report.below(where, "layer", op.layer, group.num_layers);
    f32("x", op.x, Rows::kTokens, group.state_columns);
    f32("out", op.out, Rows::kTokens, group.state_columns);
  }
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
    if (part.ring_tokens != 0) report.fail(where, "ring_tokens", 0, part.ring_tokens);
  }
  void state_dim(const char* field, uint32_t dim) {
    if (dim == 0 || dim % 4 != 0 || dim > kStateDimMax)
      report.fail(where, field, fmt::format("a multiple of 4 up to {}", kStateDimMax), dim);
  }
  void multiple_of(const char* field, uint32_t heads, uint32_t shared) {
    if (shared == 0 || heads == 0 || heads % std::max(shared, 1u) != 0)
      report.fail(where, field, fmt::format("a multiple of {}", shared), heads);
  }
  void operator()(const CausalConv& op) {
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
    state(op.state, state_numbers(channels, op));
  }
  void operator()(const GatedDelta& op) {
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
    state(op.state, state_numbers(op));
  }
  void operator()(const SelectiveScan& op) {
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
    state(op.state, state_numbers(op));
  }
  void operator()(const GatedNorm& op) {
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
  void operator()(const GatedActivation& op) {
    unrouted("out", op.out);
    any_float("out", op.out, desc(op.out).rows, kAnyColumns);
    f32("x", op.x, desc(op.out).rows, 2 * desc(op.out).columns);
  }
  // A tensor of the rows that the list's own rows become.
  void routed(const char* field, TensorId id, uint32_t columns, DType dtype) {
    tensor(field, id, Rows::kRouted, columns, desc(id).dtype == dtype, dtype_name(dtype));
  }
  void operator()(const RouteExperts& op) {
    const TensorDesc& x = desc(op.x);
    const WeightTensor& weight = limits.weights.tensors[static_cast<size_t>(op.weight)];
    unrouted("x", op.x);
    f32("x", op.x, x.rows, static_cast<uint32_t>(weight.columns));
    if (weight.encoding != Encoding::kF32) report.fail(where, "weight", "f32", encoding_name(weight.encoding));
    if (op.bias >= 0) f32_vector("bias", op.bias, weight.rows);
    if (op.correction >= 0) f32_vector("correction", op.correction, weight.rows);
    if (op.shared_gate >= 0) f32_vector("shared_gate", op.shared_gate, weight.columns);
    routed("ids", op.ids, 1, DType::kI32);
    routed("weights", op.weights, 1, DType::kF32);
    const RoutingRule& rule = op.rule;
    report.at_most(where, "experts", weight.rows, kExpertsMax);
    report.at_most(where, "routed_per_row", list.routed_per_row, kExpertsUsedMax);
    if (rule.num_shared >= list.routed_per_row)
      return report.fail(where, "num_shared", fmt::format("below routed_per_row {}", list.routed_per_row),
                         rule.num_shared);
    if (rule.groups == 0 || weight.rows % std::max(rule.groups, 1u) != 0)
      return report.fail(where, "groups", fmt::format("a part of {} experts", weight.rows), rule.groups);
    if (rule.groups_used == 0 || rule.groups_used > rule.groups)
      return report.fail(where, "groups_used", fmt::format("1 to {}", rule.groups), rule.groups_used);
    report.at_most(where, "chosen experts", list.routed_per_row - rule.num_shared,
                   weight.rows / rule.groups * rule.groups_used);
  }
  void expert_rows(uint32_t num_experts, uint64_t rows, const WeightGroup& group, uint64_t columns) {
    report.at_most(where, "num_experts", num_experts, kExpertsMax);
    if (group.rows != num_experts * rows || group.columns != columns || num_experts == 0)
      report.fail(where, "group", fmt::format("[{}, {}] of {} experts", num_experts * rows, columns, num_experts),
                  fmt::format("[{}, {}]", group.rows, group.columns));
  }
  void operator()(const ExpertGateUp& op) {
    unrouted("x", op.x);
    f32("x", op.x, desc(op.x).rows, kAnyColumns);
    routed("ids", op.ids, 1, DType::kI32);
    any_float("out", op.out, Rows::kRouted, kAnyColumns);
    expert_rows(op.num_experts, 2 * uint64_t{desc(op.out).columns},
                limits.weights.groups[static_cast<size_t>(op.group)], desc(op.x).columns);
  }
  void operator()(const ExpertDown& op) {
    any_float("x", op.x, Rows::kRouted, kAnyColumns);
    routed("ids", op.ids, 1, DType::kI32);
    routed("weights", op.weights, 1, DType::kF32);
    unrouted("out", op.out);
    f32("out", op.out, desc(op.out).rows, kAnyColumns);
    expert_rows(op.num_experts, desc(op.out).columns, limits.weights.groups[static_cast<size_t>(op.group)],
                desc(op.x).columns);
  }
  void operator()(const Add& op) {
    f32("a", op.a, Rows::kTokens, kAnyColumns);
    f32("b", op.b, Rows::kTokens, desc(op.a).columns);
    f32("out", op.out, Rows::kTokens, desc(op.a).columns);
  }
  void operator()(const Scale& op) {
    unrouted("x", op.x);
    f32("x", op.x, desc(op.x).rows, kAnyColumns);
    f32("out", op.out, desc(op.x).rows, desc(op.x).columns);
  }
  void operator()(const SoftCap& op) {
    unrouted("x", op.x);
    f32("x", op.x, desc(op.x).rows, kAnyColumns);
    f32("out", op.out, desc(op.x).rows, desc(op.x).columns);
    if (!(op.cap > 0)) report.fail(where, "cap", "above 0", op.cap);
  }
  void operator()(const SigmoidGate& op) {
    unrouted("x", op.x);
    f32("x", op.x, desc(op.x).rows, kAnyColumns);
    f32("gate", op.gate, desc(op.x).rows, desc(op.x).columns);
    any_float("out", op.out, desc(op.x).rows, desc(op.x).columns);
  }
  void operator()(const GatherRows& op) {
    f32("x", op.x, Rows::kTokens, kAnyColumns);
    f32("out", op.out, Rows::kSampled, desc(op.x).columns);
  }
  void operator()(const ApplyPenalties& op) {
    logits("logits", op.logits);
    f32("processed", op.processed, Rows::kSampled, desc(op.logits).columns);
  }
  void operator()(const ApplyBias& op) { logits("processed", op.processed); }
  void operator()(const Filter& op) {
    logits("logits", op.logits);
    f32("processed", op.processed, Rows::kSampled, desc(op.logits).columns);
    i32("kept", op.kept, Rows::kSampled, sizeof(FilterResult) / 4);
  }
  void operator()(const Sample& op) {
    logits("logits", op.logits);
    f32("processed", op.processed, Rows::kSampled, desc(op.logits).columns);
    i32("kept", op.kept, Rows::kSampled, sizeof(FilterResult) / 4);
  }
  void operator()(const Logprobs& op) {
    logits("logits", op.logits);
    f32("processed", op.processed, Rows::kSampled, desc(op.logits).columns);
    i32("kept", op.kept, Rows::kSampled, sizeof(FilterResult) / 4);
  }
  void operator()(const CopyBlocks& op) { report.below(where, "kv_group", op.kv_group, limits.groups.size()); }
  void operator()(const StoreBlocks& op) { report.below(where, "kv_group", op.kv_group, limits.groups.size()); }
  void operator()(const LoadBlocks& op) { report.below(where, "kv_group", op.kv_group, limits.groups.size()); }
};

// Which part's inputs an op reads: it can stand only in that list.
template <class... T>
bool is_one_of(const Op& op) {
  return (std::holds_alternative<T>(op) || ...);
}
bool belongs(const Op& op, Part part) {
  const bool moves_blocks = is_one_of<StoreBlocks, LoadBlocks, CopyBlocks>(op);
  const bool reads_forward = is_one_of<UpdateRows, PrepareRows, KvWrite, PagedAttention, RunningSum, CausalConv,
                                       GatedDelta, SelectiveScan, GatedNorm, Embed, QkNorm, JoinedQkNorm, Rope>(op);
  const bool reads_sample = is_one_of<GatherRows, ApplyPenalties, ApplyBias, Filter, Sample, Logprobs>(op);
  switch (part) {
    case Part::kMemory:
      return moves_blocks;
    case Part::kForward:
      return !moves_blocks && !reads_sample;
    default:
      return !moves_blocks && !reads_forward;
  }
}

void check_tensors(const Limits& limits, const OpList& list, Report* report) {
  std::set<std::string> names;
  for (TensorId id = 0; id < static_cast<TensorId>(list.tensors.size()); ++id) {
    const TensorDesc& tensor = list.tensors[static_cast<size_t>(id)];
    const std::string where = fmt::format("{} list: tensor {}", list.name, tensor.name);
    if (!names.insert(tensor.name).second) report->fail(where, "name", "one tensor of a name", "two");
    if (tensor.columns == 0) report->fail(where, "columns", "at least 1", 0);
    if (tensor.rows == Rows::kRouted && list.routed_per_row == 0)
      report->fail(where, "rows", "routed_per_row of at least 1", 0);
    report->at_most(where, "bytes", list.bytes_of(id), limits.range_bytes_max);
    if (tensor.storage != Storage::kHidden) continue;
    if (tensor.rows != Rows::kTokens || tensor.columns != limits.state.hidden_columns || tensor.dtype != DType::kF32)
      report->fail(where, "shape", shape_text(Rows::kTokens, limits.state.hidden_columns, "f32"),
                   shape_text(tensor.rows, tensor.columns, dtype_name(tensor.dtype)));
  }
}

}  // namespace

Status check_list(const Limits& limits, const OpList& list, Part part) {
  Report report;
  const std::string list_name = list.name + " list";
  report.at_most(list_name, "num_tokens", list.num_tokens, limits.state.step_tokens_max);
  report.at_most(list_name, "num_sampled", list.num_sampled, limits.state.sample_rows_max);
  check_tensors(limits, list, &report);

  std::vector<bool> written;  // pinned tensors come from outside, the hidden one of a sample list from the forward list
  for (const TensorDesc& tensor : list.tensors)
    written.push_back(tensor.storage == Storage::kPinned ||
                      (tensor.storage == Storage::kHidden && part == Part::kSample));
  for (size_t i = 0; i < list.ops.size() && report.ok(); ++i) {
    const std::string where = fmt::format("{}: op {} {}", list_name, i, op_name(list.ops[i]));
    if (!belongs(list.ops[i], part)) report.fail(where, "list", "an op of this part of a step", op_name(list.ops[i]));
    FieldChecker checker{limits, list, where, report, written, {}, {}};
    std::visit([&](const auto& op) { fields(op, checker); }, list.ops[i]);
    if (!report.ok()) break;
    std::visit(ShapeChecker{limits, list, where, report}, list.ops[i]);
    for (TensorId id : checker.writes) written[static_cast<size_t>(id)] = true;
  }
  return report.status();
}

}  // namespace llmrt::validating
