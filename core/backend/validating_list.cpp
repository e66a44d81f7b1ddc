// Op lists: ids, dtypes, shapes, order of writes and reads, sizes.
#include <cmath>
#include <set>

#include "core/backend/validating_shapes.h"
#include "core/ops/op_fields.h"

namespace llmrt::validating {
namespace {

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
struct ShapeChecker : ShapeHelpers {
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
    if (group.keys_only) report.fail(where, "kv_group", "one of keys and values", "one of keys only");
    report.below(where, "layer", op.layer, group.num_layers);
    if constexpr (std::is_same_v<T, PagedAttention>) {
      if (group.is_expanded != (op.value_dim > 0))
        report.fail(where, "value_dim", group.is_expanded ? "above 0 over expanded keys" : "0 over a cache",
                    op.value_dim);
    } else if (group.is_expanded) {
      report.fail(where, "kv_group", "a cache", "one for expanded keys");
    }
    if (group.is_expanded)
      report.at_most(where, "num_kv_heads", op.num_kv_heads, group.num_blocks);
    else if (op.num_kv_heads != group.num_kv_heads)
      report.fail(where, "num_kv_heads", group.num_kv_heads, op.num_kv_heads);
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
  void operator()(const AdapterShrink& op) {
    const WeightGroup& group = limits.weights.groups[static_cast<size_t>(op.group)];
    unrouted("x", op.x);
    any_float("x", op.x, desc(op.x).rows, static_cast<uint32_t>(group.columns));
    f32("y", op.y, desc(op.x).rows, kAnyColumns);
    if (desc(op.y).columns % kAdapterRankStep != 0)
      report.fail(where, "y columns", fmt::format("a multiple of {}", kAdapterRankStep), desc(op.y).columns);
    if (group.columns % kAdapterRankStep != 0)
      report.fail(where, "x columns", fmt::format("a multiple of {}", kAdapterRankStep), group.columns);
    plain(group);
  }
  void operator()(const AdapterExpand& op) {
    const WeightGroup& group = limits.weights.groups[static_cast<size_t>(op.group)];
    unrouted("y", op.y);
    f32("y", op.y, desc(op.y).rows, kAnyColumns);
    f32("out", op.out, desc(op.y).rows, static_cast<uint32_t>(group.rows));
    plain(group);
  }
  // A stack of experts whose adapters the ops multiply by; `rows`: of an expert.
  void expert_adapters(TensorId y, TensorId ids, const WeightGroup& group, uint32_t rows) {
    routed("ids", ids, 1, DType::kI32);
    routed("y", y, kAnyColumns, DType::kF32);
    if (group.by_head || group.num_experts == 0)
      return report.fail(where, "group", "one of experts", group.by_head ? "one of each head" : "one matrix");
    if (rows > 0 && group.rows != uint64_t{group.num_experts} * rows)
      report.fail(where, "out columns", group.rows / group.num_experts, rows);
  }
  void operator()(const ExpertShrink& op) {
    const WeightGroup& group = limits.weights.groups[static_cast<size_t>(op.group)];
    any_float("x", op.x, desc(op.x).rows, static_cast<uint32_t>(group.columns));
    expert_adapters(op.y, op.ids, group, 0);
    if (desc(op.y).columns % kAdapterRankStep != 0)
      report.fail(where, "y columns", fmt::format("a multiple of {}", kAdapterRankStep), desc(op.y).columns);
    if (group.columns % kAdapterRankStep != 0)
      report.fail(where, "x columns", fmt::format("a multiple of {}", kAdapterRankStep), group.columns);
  }
  void operator()(const ExpertTerm& op) {
    routed("out", op.out, kAnyColumns, DType::kF32);
    expert_adapters(op.y, op.ids, limits.weights.groups[static_cast<size_t>(op.group)], desc(op.out).columns);
  }
  void operator()(const ExpertExpand& op) {
    routed("weights", op.weights, 1, DType::kF32);
    unrouted("out", op.out);
    f32("out", op.out, desc(op.out).rows, kAnyColumns);
    expert_adapters(op.y, op.ids, limits.weights.groups[static_cast<size_t>(op.group)], desc(op.out).columns);
  }
  // One matrix for all rows, whose segments may have an A and B each.
  void plain(const WeightGroup& group) {
    report.at_most(where, "segments of group", group.segments.size(), size_t{kAdapterPartsMax});
    if (group.by_head || group.num_experts > 0)
      report.fail(where, "group", "one matrix", group.by_head ? "one of each head" : "one of each expert");
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
    if (op.value_dim > 0) {
      expanded(op);
    } else {
      f32("qkv", op.qkv, Rows::kTokens, op.queries_only ? op.num_heads * op.head_dim : columns);
      any_float("out", op.out, Rows::kTokens, op.num_heads * op.head_dim);
    }
    if (op.sinks >= 0) f32_vector("sinks", op.sinks, op.num_heads);
    kv(op);
    report.at_most(where, "num_heads", op.num_heads, limits.state.heads_max);
    report.at_most(where, "head_dim", op.head_dim, limits.state.head_dim_max);
  }
  // Over expanded keys: some heads of q and of out.
  void expanded(const PagedAttention& op) {
    f32("qkv", op.qkv, Rows::kTokens, kAnyColumns);
    any_float("out", op.out, Rows::kTokens, kAnyColumns);
    const uint32_t heads = desc(op.qkv).columns / std::max(op.head_dim, 1u);
    report.at_most(where, "head_first + num_heads", uint64_t{op.head_first} + op.num_heads, heads);
    if (desc(op.qkv).columns != uint64_t{heads} * op.head_dim)
      report.fail(where, "qkv columns", fmt::format("heads of {}", op.head_dim), desc(op.qkv).columns);
    if (desc(op.out).columns != uint64_t{heads} * op.value_dim)
      report.fail(where, "out columns", uint64_t{heads} * op.value_dim, desc(op.out).columns);
    report.at_most(where, "value_dim", op.value_dim, op.head_dim);
    if (!op.queries_only || op.window > 0 || op.sinks >= 0)
      report.fail(where, "value_dim", "0 but for queries over all keys without sinks", op.value_dim);
  }
  void operator()(const LatentRows& op) { check(*this, op); }
  void operator()(const HeadMatmul& op) { check(*this, op); }
  void operator()(const LatentAttention& op) { check(*this, op); }
  void operator()(const ExpandLatent& op) { check(*this, op); }
  void operator()(const RunningSum& op) {
    if (!report.below(where, "kv_group", op.kv_group, limits.groups.size())) return;
    const KvGroup& group = limits.groups[op.kv_group];
    if (!group.is_state()) return report.fail(where, "kv_group", "a group of states", "one of blocks");
    report.below(where, "layer", op.layer, group.num_layers);
    f32("x", op.x, Rows::kTokens, group.state_columns);
    f32("out", op.out, Rows::kTokens, group.state_columns);
  }
  void operator()(const CausalConv& op) { check(*this, op); }
  void operator()(const GatedDelta& op) { check(*this, op); }
  void operator()(const SelectiveScan& op) { check(*this, op); }
  void operator()(const GatedNorm& op) { check(*this, op); }
  void operator()(const GatedActivation& op) {
    unrouted("out", op.out);
    any_float("out", op.out, desc(op.out).rows, kAnyColumns);
    f32("x", op.x, desc(op.out).rows, (has_other_half(op.activation) ? 2 : 1) * desc(op.out).columns);
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
    const uint32_t rows = (has_other_half(op.activation) ? 2 : 1) * desc(op.out).columns;
    if (op.term != kNoTensor) routed("term", op.term, rows, DType::kF32);
    expert_rows(op.num_experts, rows, limits.weights.groups[static_cast<size_t>(op.group)], desc(op.x).columns);
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
    unrouted("a", op.a);
    f32("a", op.a, desc(op.a).rows, kAnyColumns);
    f32("b", op.b, desc(op.a).rows, desc(op.a).columns);
    f32("out", op.out, desc(op.a).rows, desc(op.a).columns);
  }
  void operator()(const Scale& op) {
    unrouted("x", op.x);
    f32("x", op.x, desc(op.x).rows, kAnyColumns);
    any_float("out", op.out, desc(op.x).rows, desc(op.x).columns);
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
  const bool reads_forward =
      is_one_of<UpdateRows, PrepareRows, KvWrite, PagedAttention, LatentRows, HeadMatmul, LatentAttention, ExpandLatent,
                RunningSum, CausalConv, GatedDelta, SelectiveScan, GatedNorm, Embed, QkNorm, JoinedQkNorm, Rope>(op);
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
    std::visit(ShapeChecker{{limits, list, where, report}}, list.ops[i]);
    for (TensorId id : checker.writes) written[static_cast<size_t>(id)] = true;
  }
  return report.status();
}

}  // namespace llmrt::validating
