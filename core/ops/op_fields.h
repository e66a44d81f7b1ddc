// The fields of each op, told once: printing, hashing and access sets are visitors over these.
//   v.in / v.out / v.inout (name, TensorId), v.weight (name, WeightId), v.group (name, WeightGroupId),
//   v.value (name, number or enum)
#pragma once

#include "core/ops/ops.h"

namespace llmrt {

template <class V>
void fields(const UpdateRows&, V&) {}
template <class V>
void fields(const PrepareRows& op, V& v) {
  v.out("tokens", op.tokens);
  v.out("positions", op.positions);
  v.out("row_slots", op.row_slots);
  constexpr const char* kNames[kKvGroupsMax] = {"kv_slots", "kv_slots1", "kv_slots2", "kv_slots3"};
  uint32_t groups = 0;
  for (uint32_t g = 0; g < kKvGroupsMax; ++g) {
    if (op.kv_slots[g] == kNoTensor) continue;
    v.out(kNames[g], op.kv_slots[g]);
    groups |= 1u << g;
  }
  if (groups != 1) v.value("kv_groups", groups);
}
template <class V>
void fields(const Embed& op, V& v) {
  v.in("tokens", op.tokens);
  v.weight("weight", op.weight);
  v.out("out", op.out);
}
template <class V>
void fields(const RmsNorm& op, V& v) {
  if (op.delta != kNoTensor) {
    v.inout("x", op.x);
    v.in("delta", op.delta);
  } else {
    v.in("x", op.x);
  }
  v.weight("weight", op.weight);
  v.value("eps", op.eps);
  v.out("out", op.out);
}
template <class V>
void fields(const Matmul& op, V& v) {
  v.in("x", op.x);
  v.group("group", op.group);
  v.out("out", op.out);
}
template <class V>
void fields(const AdapterShrink& op, V& v) {
  v.in("x", op.x);
  v.group("group", op.group);
  v.out("y", op.y);
}
template <class V>
void fields(const AdapterExpand& op, V& v) {
  v.in("y", op.y);
  v.group("group", op.group);
  v.inout("out", op.out);
}
template <class V>
void fields(const ExpertShrink& op, V& v) {
  v.in("x", op.x);
  v.in("ids", op.ids);
  v.group("group", op.group);
  v.out("y", op.y);
}
template <class V>
void fields(const ExpertTerm& op, V& v) {
  v.in("y", op.y);
  v.in("ids", op.ids);
  v.group("group", op.group);
  v.out("out", op.out);
}
template <class V>
void fields(const ExpertExpand& op, V& v) {
  v.in("y", op.y);
  v.in("ids", op.ids);
  v.in("weights", op.weights);
  v.group("group", op.group);
  v.inout("out", op.out);
}
template <class V>
void fields(const QkNorm& op, V& v) {
  v.inout("qkv", op.qkv);
  v.weight("q_weight", op.q_weight);
  v.weight("k_weight", op.k_weight);
  v.value("num_heads", op.num_heads);
  v.value("num_kv_heads", op.num_kv_heads);
  v.value("head_dim", op.head_dim);
  v.value("eps", op.eps);
  if (op.v_weight >= 0) v.weight("v_weight", op.v_weight);
}
template <class V>
void fields(const JoinedQkNorm& op, V& v) {
  v.inout("qkv", op.qkv);
  v.weight("q_weight", op.q_weight);
  v.weight("k_weight", op.k_weight);
  v.value("num_heads", op.num_heads);
  v.value("num_kv_heads", op.num_kv_heads);
  v.value("head_dim", op.head_dim);
  v.value("eps", op.eps);
}
template <class V>
void fields(const Rope& op, V& v) {
  v.inout("qkv", op.qkv);
  v.in("positions", op.positions);
  v.weight("freqs", op.freqs);
  v.value("num_heads", op.num_heads);
  v.value("num_kv_heads", op.num_kv_heads);
  v.value("head_dim", op.head_dim);
  v.value("rope_dim", op.rope_dim);
  v.value("pairing", static_cast<uint32_t>(op.pairing));
  v.value("magnitude", op.magnitude);
}
template <class V>
void fields(const KvWrite& op, V& v) {
  v.in("qkv", op.qkv);
  v.in("kv_slots", op.kv_slots);
  v.value("kv_group", op.kv_group);
  v.value("layer", op.layer);
  v.value("num_heads", op.num_heads);
  v.value("num_kv_heads", op.num_kv_heads);
  v.value("head_dim", op.head_dim);
  v.value("k_scale", op.scales.k);
  v.value("v_scale", op.scales.v);
}
template <class V>
void fields(const PagedAttention& op, V& v) {
  v.in("qkv", op.qkv);
  if (op.value_dim > 0)
    v.inout("out", op.out);
  else
    v.out("out", op.out);
  v.value("kv_group", op.kv_group);
  v.value("layer", op.layer);
  v.value("num_heads", op.num_heads);
  v.value("num_kv_heads", op.num_kv_heads);
  v.value("head_dim", op.head_dim);
  v.value("scale", op.scale);
  v.value("window", op.window);
  v.value("soft_cap", op.soft_cap);
  v.value("k_scale", op.scales.k);
  v.value("v_scale", op.scales.v);
  if (op.sinks >= 0) v.weight("sinks", op.sinks);
  if (op.queries_only) v.value("queries_only", 1u);
  if (op.value_dim > 0) {
    v.value("value_dim", op.value_dim);
    v.value("head_first", op.head_first);
  }
}
template <class V>
void fields(const LatentRows& op, V& v) {
  if (op.turns_q)
    v.inout("q", op.q);
  else
    v.in("q", op.q);
  v.in("kv", op.kv);
  v.in("positions", op.positions);
  v.in("kv_slots", op.kv_slots);
  v.weight("norm", op.norm);
  v.weight("freqs", op.freqs);
  v.value("kv_group", op.kv_group);
  v.value("layer", op.layer);
  v.value("num_heads", op.num_heads);
  v.value("nope", op.nope);
  v.value("rank", op.rank);
  v.value("rope_dim", op.rope_dim);
  v.value("pairing", static_cast<uint32_t>(op.pairing));
  v.value("magnitude", op.magnitude);
  v.value("eps", op.eps);
  v.value("k_scale", op.scales.k);
  v.out("query", op.query);
}
template <class V>
void fields(const HeadMatmul& op, V& v) {
  v.in("x", op.x);
  v.group("group", op.group);
  v.value("num_heads", op.num_heads);
  v.value("fills_out", static_cast<uint32_t>(op.fills_out));
  if (op.absorbed_only) v.value("absorbed_only", 1u);
  if (op.fills_out)
    v.out("out", op.out);
  else
    v.inout("out", op.out);
}
template <class V>
void fields(const LatentAttention& op, V& v) {
  v.in("query", op.query);
  v.out("out", op.out);
  v.value("kv_group", op.kv_group);
  v.value("layer", op.layer);
  v.value("num_heads", op.num_heads);
  v.value("rank", op.rank);
  v.value("rope_dim", op.rope_dim);
  v.value("scale", op.scale);
  v.value("k_scale", op.scales.k);
}
template <class V>
void fields(const ExpandLatent& op, V& v) {
  v.group("key_group", op.key_group);
  v.group("value_group", op.value_group);
  v.value("kv_group", op.kv_group);
  v.value("layer", op.layer);
  v.value("expanded_group", op.expanded_group);
  v.value("head_first", op.head_first);
  v.value("num_heads", op.num_heads);
  v.value("nope", op.nope);
  v.value("rank", op.rank);
  v.value("rope_dim", op.rope_dim);
  v.value("value_dim", op.value_dim);
  v.value("k_scale", op.scales.k);
}
template <class V>
void fields(const RunningSum& op, V& v) {
  v.in("x", op.x);
  v.value("kv_group", op.kv_group);
  v.value("layer", op.layer);
  v.out("out", op.out);
}
template <class V>
void columns_in(const char* name, const char* first_name, const Columns& columns, V& v) {
  if (columns.tensor == kNoTensor) return;
  v.in(name, columns.tensor);
  if (columns.first > 0) v.value(first_name, columns.first);
}
template <class V>
void state_part(const StatePart& state, V& v) {
  v.value("kv_group", state.kv_group);
  v.value("layer", state.layer);
  v.value("state_first", state.first);
  if (state.ring_tokens > 0) v.value("ring_tokens", state.ring_tokens);
}
template <class V>
void fields(const CausalConv& op, V& v) {
  columns_in("x", "x_first", op.x, v);
  columns_in("gate_in", "gate_in_first", op.gate_in, v);
  columns_in("gate_out", "gate_out_first", op.gate_out, v);
  v.weight("weight", op.weight);
  if (op.bias >= 0) v.weight("bias", op.bias);
  v.value("width", op.width);
  v.value("silu", static_cast<uint32_t>(op.silu));
  state_part(op.state, v);
  v.out("out", op.out);
}
template <class V>
void fields(const GatedDelta& op, V& v) {
  columns_in("qkv", "qkv_first", op.qkv, v);
  columns_in("alpha", "alpha_first", op.alpha, v);
  columns_in("beta", "beta_first", op.beta, v);
  v.weight("a", op.a);
  v.weight("dt_bias", op.dt_bias);
  v.value("key_heads", op.key_heads);
  v.value("value_heads", op.value_heads);
  v.value("key_dim", op.key_dim);
  v.value("value_dim", op.value_dim);
  v.value("order", static_cast<uint32_t>(op.order));
  v.value("gates_in_turn", static_cast<uint32_t>(op.gates_in_turn));
  v.value("normalise", static_cast<uint32_t>(op.normalise));
  v.value("eps", op.eps);
  v.value("scale", op.scale);
  state_part(op.state, v);
  v.out("out", op.out);
}
template <class V>
void fields(const SelectiveScan& op, V& v) {
  columns_in("x", "x_first", op.x, v);
  columns_in("b", "b_first", op.b, v);
  columns_in("c", "c_first", op.c, v);
  columns_in("dt", "dt_first", op.dt, v);
  v.weight("dt_bias", op.dt_bias);
  v.weight("a", op.a);
  if (op.d >= 0) v.weight("d", op.d);
  v.value("num_heads", op.num_heads);
  v.value("head_dim", op.head_dim);
  v.value("num_groups", op.num_groups);
  v.value("state_dim", op.state_dim);
  v.value("dt_min", op.dt_min);
  v.value("dt_max", op.dt_max);
  state_part(op.state, v);
  v.out("out", op.out);
}
template <class V>
void fields(const GatedNorm& op, V& v) {
  v.in("x", op.x);
  columns_in("gate", "gate_first_column", op.gate, v);
  v.weight("weight", op.weight);
  v.value("group_columns", op.group_columns);
  v.value("eps", op.eps);
  v.value("gate_first", static_cast<uint32_t>(op.gate_first));
  v.out("out", op.out);
}
template <class V>
void fields(const GatedActivation& op, V& v) {
  v.in("x", op.x);
  v.value("activation", static_cast<uint32_t>(op.activation));
  v.out("out", op.out);
}
template <class V>
void fields(const RouteExperts& op, V& v) {
  v.in("x", op.x);
  v.weight("weight", op.weight);
  if (op.bias >= 0) v.weight("bias", op.bias);
  if (op.correction >= 0) v.weight("correction", op.correction);
  if (op.shared_gate >= 0) v.weight("shared_gate", op.shared_gate);
  v.value("scoring", static_cast<uint32_t>(op.rule.scoring));
  v.value("renormalise", static_cast<uint32_t>(op.rule.renormalise));
  v.value("scale", op.rule.scale);
  v.value("groups", op.rule.groups);
  v.value("groups_used", op.rule.groups_used);
  v.value("num_shared", op.rule.num_shared);
  v.out("ids", op.ids);
  v.out("weights", op.weights);
}
template <class V>
void fields(const ExpertGateUp& op, V& v) {
  v.in("x", op.x);
  v.in("ids", op.ids);
  v.group("group", op.group);
  v.value("num_experts", op.num_experts);
  v.value("by_expert", static_cast<uint32_t>(op.by_expert));
  v.value("activation", static_cast<uint32_t>(op.activation));
  if (op.term != kNoTensor) v.in("term", op.term);
  v.out("out", op.out);
}
template <class V>
void fields(const ExpertDown& op, V& v) {
  v.in("x", op.x);
  v.in("ids", op.ids);
  v.in("weights", op.weights);
  v.group("group", op.group);
  v.value("num_experts", op.num_experts);
  v.out("out", op.out);
}
template <class V>
void fields(const Add& op, V& v) {
  v.in("a", op.a);
  v.in("b", op.b);
  v.out("out", op.out);
}
template <class V>
void fields(const Scale& op, V& v) {
  v.in("x", op.x);
  v.value("factor", op.factor);
  v.out("out", op.out);
}
template <class V>
void fields(const SoftCap& op, V& v) {
  v.in("x", op.x);
  v.value("cap", op.cap);
  v.out("out", op.out);
}
template <class V>
void fields(const SigmoidGate& op, V& v) {
  v.in("x", op.x);
  v.in("gate", op.gate);
  v.out("out", op.out);
}
template <class V>
void fields(const GatherRows& op, V& v) {
  v.in("x", op.x);
  v.out("out", op.out);
}
template <class V>
void fields(const ApplyPenalties& op, V& v) {
  v.in("logits", op.logits);
  v.out("processed", op.processed);
}
template <class V>
void fields(const ApplyBias& op, V& v) {
  v.inout("processed", op.processed);
}
template <class V>
void fields(const Filter& op, V& v) {
  v.in("logits", op.logits);
  v.in("processed", op.processed);
  v.out("kept", op.kept);
}
template <class V>
void fields(const Sample& op, V& v) {
  v.in("logits", op.logits);
  v.in("processed", op.processed);
  v.in("kept", op.kept);
}
template <class V>
void fields(const Logprobs& op, V& v) {
  v.in("logits", op.logits);
  v.in("processed", op.processed);
  v.in("kept", op.kept);
}
template <class V>
void fields(const CopyBlocks& op, V& v) {
  v.value("kv_group", op.kv_group);
}
template <class V>
void fields(const StoreBlocks& op, V& v) {
  v.value("kv_group", op.kv_group);
}
template <class V>
void fields(const LoadBlocks& op, V& v) {
  v.value("kv_group", op.kv_group);
}

}  // namespace llmrt
