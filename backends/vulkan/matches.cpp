#include "backends/vulkan/matches.h"

#include <fmt/format.h>

#include <algorithm>

namespace llmrt::vulkan {
namespace {

bool writes(const OpAccess& access, TensorId id) {
  return std::ranges::find(access.writes, id) != access.writes.end();
}

bool have_one_shape(const OpList& list, TensorId a, TensorId b) {
  return list.tensors[a].rows == list.tensors[b].rows && list.tensors[a].columns == list.tensors[b].columns;
}

std::string name_of(const OpFlow& flow, uint32_t op) {
  return op_name(flow.list().ops[op]);
}

// The first op between two that writes what the first one reads, or, with `sums_stay`, uses the memory in which
// matmuls hand over sums and norms.
std::string obstacle(const OpFlow& flow, uint32_t first, uint32_t last, bool sums_stay) {
  for (uint32_t op = first + 1; op < last; ++op) {
    for (const TensorId id : flow.access_of(first).reads)
      if (writes(flow.access_of(op), id)) return fmt::format("{} overwrites its input", name_of(flow, op));
    if (sums_stay && (flow.get<Matmul>(op) || flow.get<RmsNorm>(op)))
      return fmt::format("{} stands between", name_of(flow, op));
  }
  return {};
}

// The one op of type T that uses `result`, which op `op` made, and reads it as `is_wanted` says. Lost: there is an op
// of that type, but another op uses the result too, or makes of the result what T reads.
template <class T, class Wanted>
Match find_reader(const OpFlow& flow, uint32_t op, TensorId result, const Wanted& is_wanted) {
  Match match;
  const OpList& list = flow.list();
  const std::span<const uint32_t> users = flow.users_behind(result, op);
  for (const uint32_t user : users) {
    const T* wanted = flow.get<T>(user);
    if (!wanted || !is_wanted(*wanted)) continue;
    if (list.tensors[result].storage != Storage::kArena) match.lost = "its result is kept";
    for (const uint32_t other : users)
      if (other != user) match.lost = fmt::format("{} uses its result too", name_of(flow, other));
    match.ops = {op, user};
    return match;
  }
  // Through tensors of the same shape in which other ops pass it on.
  struct Derived {
    TensorId id;
    uint32_t by;
  };
  std::vector<Derived> derived{{result, op}};
  for (size_t i = 0; i < derived.size(); ++i)
    for (const uint32_t user : flow.users_behind(derived[i].id, derived[i].by)) {
      if (i > 0 && flow.get<T>(user)) {
        match.ops = {op, user};
        match.lost = fmt::format("{} stands between", name_of(flow, derived[i].by));
        return match;
      }
      if (!flow.passes_on(user)) continue;
      for (const TensorId made : flow.access_of(user).writes)
        if (made != derived[i].id && have_one_shape(list, made, result)) derived.push_back({made, user});
    }
  return match;
}

Match find_normed(const OpFlow& flow, uint32_t op) {
  const Matmul* matmul = flow.get<Matmul>(op);
  if (!matmul) return {};
  Match match = find_reader<RmsNorm>(flow, op, matmul->out, [&](const RmsNorm& n) { return n.delta == matmul->out; });
  match.num_run = 1;
  if (!match.ops.empty() && match.lost.empty()) match.lost = obstacle(flow, op, match.ops[1], true);
  return match;
}

}  // namespace

Match find_gated_matmul(const OpFlow& flow, uint32_t op) {
  const Matmul* matmul = flow.get<Matmul>(op);
  if (!matmul) return {};
  Match match = find_reader<GatedActivation>(flow, op, matmul->out, [](const GatedActivation&) { return true; });
  match.num_run = 2;
  if (!match.ops.empty() && match.lost.empty()) match.lost = obstacle(flow, op, match.ops[1], false);
  return match;
}

Match find_parts_matmul(const OpFlow& flow, uint32_t op) {
  return find_normed(flow, op);
}

Match find_normed_matmul(const OpFlow& flow, uint32_t op) {
  Match match = find_normed(flow, op);
  if (match.ops.empty() || !match.lost.empty()) return match;
  match.num_run = 2;
  const uint32_t norm = match.ops[1];
  const TensorId normed = flow.get<RmsNorm>(norm)->out;
  const Match next = find_reader<Matmul>(flow, norm, normed, [](const Matmul&) { return true; });
  if (next.ops.empty()) return {};
  match.ops.push_back(next.ops[1]);
  match.lost = next.lost.empty() ? obstacle(flow, norm, next.ops[1], true) : "of its norm: " + next.lost;
  return match;
}

Match find_qkv_matmul(const OpFlow& flow, uint32_t op) {
  const Matmul* matmul = flow.get<Matmul>(op);
  if (!matmul) return {};
  const std::span<const uint32_t> users = flow.users_behind(matmul->out, op);
  const auto has = [&](auto is) { return std::ranges::any_of(users, is); };
  const bool turns = has([&](uint32_t u) { return flow.get<Rope>(u) != nullptr; });
  if (!turns || !has([&](uint32_t u) { return flow.get<KvWrite>(u) != nullptr; })) {
    Match match = find_reader<Rope>(flow, op, matmul->out, [](const Rope&) { return true; });
    if (match.lost.empty()) return {};
    return match;
  }
  Match match;
  match.num_run = 3;
  for (const uint32_t user : users) match.ops.push_back(user);
  match.ops.insert(match.ops.begin(), op);
  // Attention alone reads what the kernel leaves of qkv, which is q.
  for (const uint32_t user : users)
    if (!flow.get<QkNorm>(user) && !flow.get<Rope>(user) && !flow.get<KvWrite>(user) && !flow.get<PagedAttention>(user))
      match.lost = fmt::format("{} uses its result too", name_of(flow, user));
  if (match.lost.empty() && flow.list().tensors[matmul->out].storage != Storage::kArena)
    match.lost = "its result is kept";
  if (match.lost.empty() && users.size() > 2) match.lost = obstacle(flow, op, users[1], false);
  return match;
}

Match find_qkv_heads(const OpFlow& flow, uint32_t op) {
  const auto rank = [&](uint32_t i) {
    return flow.get<QkNorm>(i) ? 1 : flow.get<Rope>(i) ? 2 : flow.get<KvWrite>(i) ? 3 : 0;
  };
  const auto qkv_of = [&](uint32_t i) {
    if (const QkNorm* norm = flow.get<QkNorm>(i)) return norm->qkv;
    if (const Rope* rope = flow.get<Rope>(i)) return rope->qkv;
    return flow.get<KvWrite>(i)->qkv;
  };
  if (rank(op) == 0) return {};
  Match match;
  match.ops = {op};
  const std::span<const uint32_t> users = flow.users_behind(qkv_of(op), op);
  size_t next = 0;
  while (next < users.size() && rank(users[next]) > rank(match.ops.back())) match.ops.push_back(users[next++]);
  match.num_run = static_cast<uint32_t>(match.ops.size());
  if (next + 1 < users.size() && rank(users[next]) == 0 && !flow.get<PagedAttention>(users[next]) &&
      rank(users[next + 1]) > rank(match.ops.back()))
    match.lost = fmt::format("{} stands between", name_of(flow, users[next]));
  return match;
}

}  // namespace llmrt::vulkan
