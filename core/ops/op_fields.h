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
}
template <class V>
void fields(const RunningSum& op, V& v) {
  v.in("x", op.x);
  v.value("kv_group", op.kv_group);
  v.value("layer", op.layer);
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
