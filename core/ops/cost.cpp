// FLOPs and least bytes of each op: what any tool divides a measured time by.
#include <algorithm>
#include <cmath>

#include "core/ops/op_list.h"
#include "core/weights/weight_bytes.h"

namespace llmrt {
namespace {

struct Counter {
  const OpList& list;
  const WeightTable& weights;
  const CostSizes& sizes;

  double rows(TensorId id) const { return list.rows_of(id, sizes.num_tokens, sizes.num_sampled); }
  // Live elements and bytes of a tensor.
  double elements(TensorId id) const { return rows(id) * list.tensors[id].columns; }
  double bytes(TensorId id) const { return elements(id) * dtype_bytes(list.tensors[id].dtype); }
  double weight_bytes(int32_t id) const { return static_cast<double>(weights.tensors[id].bytes()); }

  OpCost operator()(const UpdateRows&) const { return {}; }
  OpCost operator()(const PrepareRows& op) const { return {0, 4 * bytes(op.tokens)}; }
  OpCost operator()(const Embed& op) const {
    return {0, bytes(op.out) + rows(op.out) * static_cast<double>(weights.tensors[op.weight].bytes_row())};
  }
  OpCost operator()(const RmsNorm& op) const {
    const double residual = op.delta == kNoTensor ? 0 : bytes(op.x) + bytes(op.delta);
    return {4 * elements(op.x), bytes(op.x) + residual + bytes(op.out) + weight_bytes(op.weight)};
  }
  OpCost operator()(const Matmul& op) const {
    const WeightGroup& group = weights.groups[op.group];
    return {2 * rows(op.x) * static_cast<double>(group.rows) * static_cast<double>(group.columns),
            static_cast<double>(bytes_of(weights, group)) + bytes(op.x) + bytes(op.out)};
  }
  // Rows without an adapter cost nothing; A and B of a distinct adapter are read once.
  OpCost operator()(const AdapterShrink& op) const {
    const AdapterSizes& s = sizes.adapters;
    if (s.entries.empty() || s.entries[op.group].rank == 0) return {};
    const double a = static_cast<double>(s.entries[op.group].rank) * list.tensors[op.x].columns;
    const double x = static_cast<double>(list.tensors[op.x].columns) * dtype_bytes(list.tensors[op.x].dtype);
    return {2 * s.num_rows * a,
            s.num_adapters * a * s.number_bytes + s.num_rows * (x + 4.0 * s.entries[op.group].rank)};
  }
  OpCost operator()(const AdapterExpand& op) const {
    const AdapterSizes& s = sizes.adapters;
    if (s.entries.empty() || s.entries[op.group].rank == 0) return {};
    const AdapterEntry& entry = s.entries[op.group];
    double b = 0, rows = 0;  // numbers of B; numbers of a row of `out` that change
    uint32_t rank_begin = 0, row_begin = 0;
    for (uint32_t p = 0; p < entry.num_parts; ++p) {
      const double part_rows = entry.row_end[p] - row_begin, rank = entry.rank_end[p] - rank_begin;
      b += part_rows * rank;
      if (rank > 0) rows += part_rows;
      rank_begin = entry.rank_end[p];
      row_begin = entry.row_end[p];
    }
    return {2 * s.num_rows * b, s.num_adapters * b * s.number_bytes + s.num_rows * (4.0 * entry.rank + 8 * rows)};
  }
  // The same by routed rows. Experts whose A and B are read are those that rows evenly drawn would reach.
  OpCost operator()(const ExpertShrink& op) const {
    const AdapterSizes& s = sizes.adapters;
    if (s.entries.empty() || s.entries[op.group].rank == 0) return {};
    const AdapterEntry& entry = s.entries[op.group];
    const double a = static_cast<double>(entry.rank) * list.tensors[op.x].columns, routed = routed_rows();
    const double x = static_cast<double>(list.tensors[op.x].columns) * dtype_bytes(list.tensors[op.x].dtype);
    const double x_rows = list.tensors[op.x].rows == Rows::kRouted ? routed : s.num_rows;
    return {2 * routed * a,
            matrices_read(op.group, entry.a_stride) * a * s.number_bytes + x_rows * x + routed * 4.0 * entry.rank};
  }
  OpCost operator()(const ExpertTerm& op) const {
    OpCost made = expert_products(op.group);
    made.bytes += bytes(op.out);
    return made;
  }
  OpCost operator()(const ExpertExpand& op) const {
    OpCost made = expert_products(op.group);
    if (made.flops > 0) made.bytes += 8.0 * sizes.adapters.num_rows * list.tensors[op.out].columns;
    return made;
  }
  double routed_rows() const { return static_cast<double>(sizes.adapters.num_rows) * list.routed_per_row; }
  // How many of a stack's A or B: one where all experts have the same.
  double matrices_read(int32_t group, uint32_t stride) const {
    const AdapterSizes& s = sizes.adapters;
    if (stride == 0) return s.num_adapters;
    return s.num_adapters * expected_distinct_experts(weights.groups[group].num_experts, list.routed_per_row,
                                                      static_cast<double>(s.num_rows) / std::max(s.num_adapters, 1u));
  }
  // B y of all routed rows with adapters, without what is written.
  OpCost expert_products(int32_t group) const {
    const AdapterSizes& s = sizes.adapters;
    if (s.entries.empty() || s.entries[group].rank == 0) return {};
    const AdapterEntry& entry = s.entries[group];
    OpCost made{0, routed_rows() * 4.0 * entry.rank};
    uint32_t rank_begin = 0, row_begin = 0;
    for (uint32_t p = 0; p < entry.num_parts; ++p) {
      const double b = static_cast<double>(entry.row_end[p] - row_begin) * (entry.rank_end[p] - rank_begin);
      made.flops += 2 * routed_rows() * b;
      made.bytes += matrices_read(group, entry.b_stride[p]) * b * s.number_bytes;
      rank_begin = entry.rank_end[p];
      row_begin = entry.row_end[p];
    }
    return made;
  }
  OpCost operator()(const QkNorm& op) const { return {4 * elements(op.qkv), 2 * bytes(op.qkv)}; }
  OpCost operator()(const JoinedQkNorm& op) const { return {4 * elements(op.qkv), 2 * bytes(op.qkv)}; }
  OpCost operator()(const Rope& op) const { return {3 * elements(op.qkv), 2 * bytes(op.qkv)}; }
  OpCost operator()(const KvWrite& op) const {
    const double share = 2.0 * op.num_kv_heads / (op.num_heads + 2.0 * op.num_kv_heads);
    return {0, share * bytes(op.qkv) + rows(op.qkv) * sizes.kv.at(op.kv_group).bytes_token};
  }
  OpCost operator()(const PagedAttention& op) const {
    const KvSizes& kv = sizes.kv.at(op.kv_group);
    if (op.value_dim > 0) {  // the group's bytes are those of one head
      const double rows = std::max(0.0, static_cast<double>(sizes.num_tokens) - absorbed_tokens());
      return {2.0 * static_cast<double>(kv.attention_pairs) * op.num_heads * (op.head_dim + op.value_dim),
              op.num_heads * (static_cast<double>(kv.tokens) * kv.bytes_token +
                              rows * (4.0 * op.head_dim + op.value_dim * dtype_bytes(list.tensors[op.out].dtype)))};
    }
    return {4.0 * static_cast<double>(kv.attention_pairs) * op.num_heads * op.head_dim,
            static_cast<double>(kv.tokens) * kv.bytes_token + 2 * bytes(op.out)};
  }
  OpCost operator()(const LatentRows& op) const {
    const double turned = rows(op.q) * 4 * op.num_heads * op.rope_dim;
    return {8 * elements(op.kv) + 3 * turned / 4, bytes(op.kv) + (op.turns_q ? 3 : 2) * turned +
                                                      rows(op.kv) * sizes.kv.at(op.kv_group).bytes_token +
                                                      weight_bytes(op.norm)};
  }
  OpCost operator()(const HeadMatmul& op) const {
    const WeightGroup& group = weights.groups[op.group];
    const double tokens = op.absorbed_only ? absorbed_tokens() : rows(op.x);
    const double x = tokens * op.num_heads * static_cast<double>(group.columns);
    const double out = tokens * static_cast<double>(group.rows);
    return {2 * tokens * static_cast<double>(group.rows) * static_cast<double>(group.columns),
            static_cast<double>(bytes_of(weights, group)) + x * dtype_bytes(list.tensors[op.x].dtype) +
                out * dtype_bytes(list.tensors[op.out].dtype)};
  }
  // All heads read the same rows: each is counted once.
  OpCost operator()(const LatentAttention& op) const {
    const KvSizes& kv = sizes.kv.at(op.kv_group);
    return {2.0 * static_cast<double>(kv.attention_pairs) * op.num_heads * (op.row_dim() + op.rank),
            static_cast<double>(kv.tokens) * kv.bytes_token + bytes(op.query) + bytes(op.out)};
  }
  double absorbed_tokens() const { return std::min(sizes.num_absorbed, sizes.num_tokens); }
  // Latents are read once for all heads, and what they become is written.
  OpCost operator()(const ExpandLatent& op) const {
    const double keys = static_cast<double>(sizes.kv.at(op.expanded_group).tokens), dims = op.nope + op.value_dim;
    const double share = op.num_heads * dims /
                         static_cast<double>(weights.groups[op.key_group].rows + weights.groups[op.value_group].rows);
    return {2 * keys * op.num_heads * dims * op.rank,
            keys * (sizes.kv.at(op.kv_group).bytes_token + 2.0 * op.num_heads * (op.key_dim() + op.value_dim)) +
                share * static_cast<double>(bytes_of(weights, weights.groups[op.key_group]) +
                                            bytes_of(weights, weights.groups[op.value_group]))};
  }
  OpCost operator()(const RunningSum& op) const { return {elements(op.out), 2 * bytes(op.out)}; }
  // States are read and written once a row, and a list does not know its rows: a token each where rows decode, else
  // one.
  double state_bytes(uint64_t numbers) const { return 8.0 * static_cast<double>(numbers) * state_rows(); }
  double state_rows() const { return list.decode_only ? sizes.num_tokens : 1; }
  // A row that decodes writes what its token gives, others all that is kept.
  double conv_bytes(uint32_t width, uint32_t channels) const {
    const uint32_t written = list.decode_only ? 1 : conv_slots(width);
    return 4.0 * (width - 1 + written) * channels * state_rows();
  }
  OpCost operator()(const CausalConv& op) const {
    const double gates = (op.gate_in.tensor != kNoTensor) + (op.gate_out.tensor != kNoTensor);
    const double x_bytes = 4 * elements(op.out);
    return {(2.0 * op.width + gates + (op.silu ? 4 : 0)) * elements(op.out),
            (1 + gates) * x_bytes + bytes(op.out) + weight_bytes(op.weight) +
                conv_bytes(op.width, list.tensors[op.out].columns)};
  }
  // A number of the state is multiplied and added to twice (S^T k, k d^T), decayed, and once more read for S^T q.
  OpCost operator()(const GatedDelta& op) const {
    const double in = rows(op.out) * 4 * (2.0 * op.key_heads * op.key_dim + 2.0 * op.value_heads);
    return {7 * rows(op.out) * static_cast<double>(ring_of(op).matrix_numbers()),
            in + 2 * bytes(op.out) + matrix_bytes(op.state, ring_of(op))};
  }
  OpCost operator()(const SelectiveScan& op) const {
    const double in = rows(op.out) * 4 * (2.0 * op.num_groups * op.state_dim + op.num_heads);
    return {5 * rows(op.out) * static_cast<double>(ring_of(op).matrix_numbers()),
            in + 2 * bytes(op.out) + matrix_bytes(op.state, ring_of(op))};
  }
  // With a ring a row that decodes writes its matrices at every kRingTokens-th position, and reads the entries since.
  double matrix_bytes(const StatePart& state, const StateRing& ring) const {
    if (state.ring_tokens == 0) return state_bytes(ring.matrix_numbers());
    const double writes = list.decode_only ? 1.0 / kRingTokens : 1, entries_read = (kRingTokens - 1) / 2.0;
    const double entries_written = list.decode_only ? 1 : entries_read;
    return 4 * state_rows() *
           ((1 + writes) * static_cast<double>(ring.matrix_numbers()) +
            (entries_read + entries_written) * static_cast<double>(ring.entry_numbers()));
  }
  OpCost operator()(const GatedNorm& op) const {
    return {9 * elements(op.x), 2 * bytes(op.x) + bytes(op.out) + weight_bytes(op.weight)};
  }
  OpCost operator()(const GatedActivation& op) const { return {6 * elements(op.out), bytes(op.x) + bytes(op.out)}; }
  OpCost operator()(const RouteExperts& op) const {
    return {2 * elements(op.x) * static_cast<double>(weights.tensors[op.weight].rows),
            bytes(op.x) + weight_bytes(op.weight) + bytes(op.ids) + bytes(op.weights)};
  }
  OpCost operator()(const ExpertGateUp& op) const {
    return {(has_other_half(op.activation) ? 4 : 2) * elements(op.out) * list.tensors[op.x].columns,
            expert_bytes(op.group, op.num_experts, op.ids) + bytes(op.x) + bytes(op.out) +
                (op.term == kNoTensor ? 0 : bytes(op.term))};
  }
  OpCost operator()(const ExpertDown& op) const {
    return {2 * elements(op.x) * list.tensors[op.out].columns,
            expert_bytes(op.group, op.num_experts, op.ids) + bytes(op.x) + bytes(op.out)};
  }
  // Weights of the experts that rows go to: each is read once.
  double expert_bytes(int32_t id, uint32_t num_experts, TensorId ids) const {
    if (list.routed_per_row == 0) return 0;
    const double distinct =
        !sizes.distinct_experts.empty()
            ? sizes.distinct_experts[static_cast<size_t>(ids)]
            : expected_distinct_experts(num_experts, list.routed_per_row, rows(ids) / list.routed_per_row);
    return static_cast<double>(bytes_of(weights, weights.groups[id])) * distinct / num_experts;
  }
  OpCost operator()(const Add& op) const { return {elements(op.out), 3 * bytes(op.out)}; }
  OpCost operator()(const Scale& op) const { return {elements(op.out), 2 * bytes(op.out)}; }
  OpCost operator()(const SoftCap& op) const { return {5 * elements(op.out), 2 * bytes(op.out)}; }
  OpCost operator()(const SigmoidGate& op) const { return {4 * elements(op.out), 2 * bytes(op.x) + bytes(op.out)}; }
  OpCost operator()(const GatherRows& op) const { return {0, 2 * bytes(op.out)}; }
  // Rows without features cost nothing; a list does not know which rows have them, so the least is nothing.
  OpCost operator()(const ApplyPenalties&) const { return {}; }
  OpCost operator()(const ApplyBias&) const { return {}; }
  OpCost operator()(const Filter& op) const { return {elements(op.logits), bytes(op.logits)}; }
  OpCost operator()(const Sample& op) const { return {4 * elements(op.logits), bytes(op.logits)}; }
  OpCost operator()(const Logprobs&) const { return {}; }
  // How many blocks move is in the inputs alone.
  OpCost operator()(const CopyBlocks&) const { return {}; }
  OpCost operator()(const StoreBlocks&) const { return {}; }
  OpCost operator()(const LoadBlocks&) const { return {}; }
};

}  // namespace

double expected_distinct_experts(uint32_t num_experts, uint32_t used, double rows) {
  if (num_experts == 0 || used >= num_experts) return num_experts;
  return num_experts * (1 - std::pow(1 - static_cast<double>(used) / num_experts, rows));
}

OpCost cost(const OpList& list, const Op& op, const WeightTable& weights, const CostSizes& sizes) {
  return std::visit(Counter{list, weights, sizes}, op);
}

}  // namespace llmrt
