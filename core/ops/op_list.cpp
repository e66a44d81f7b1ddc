#include "core/ops/op_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "core/ops/op_fields.h"
#include "core/weights/weight_table.h"

namespace llmrt {
namespace {

constexpr const char* kOpNames[kNumOps] = {"update_rows",
                                           "prepare_rows",
                                           "embed",
                                           "rms_norm",
                                           "matmul",
                                           "adapter_shrink",
                                           "adapter_expand",
                                           "expert_shrink",
                                           "expert_term",
                                           "expert_expand",
                                           "qk_norm",
                                           "joined_qk_norm",
                                           "rope",
                                           "kv_write",
                                           "paged_attention",
                                           "latent_rows",
                                           "head_matmul",
                                           "latent_attention",
                                           "expand_latent",
                                           "running_sum",
                                           "causal_conv",
                                           "gated_delta",
                                           "selective_scan",
                                           "gated_norm",
                                           "gated_activation",
                                           "route_experts",
                                           "expert_gate_up",
                                           "expert_down",
                                           "add",
                                           "scale",
                                           "soft_cap",
                                           "sigmoid_gate",
                                           "gather_rows",
                                           "apply_penalties",
                                           "apply_bias",
                                           "filter",
                                           "sample",
                                           "logprobs",
                                           "copy_blocks",
                                           "store_blocks",
                                           "load_blocks"};

struct Printer {
  const OpList& list;
  std::string text;

  void tensor(const char* name, TensorId id, const char* arrow) {
    const TensorDesc& t = list.tensors[id];
    text += fmt::format(" {}{}={}[{}{},{}]{}", arrow, name, t.name, rows_name(t.rows), list.rows_of(id), t.columns,
                        dtype_name(t.dtype));
  }
  void in(const char* name, TensorId id) { tensor(name, id, ""); }
  void out(const char* name, TensorId id) { tensor(name, id, "-> "); }
  void inout(const char* name, TensorId id) { tensor(name, id, "<-> "); }
  void weight(const char* name, int32_t id) { text += fmt::format(" {}=w{}", name, id); }
  void group(const char* name, int32_t id) { text += fmt::format(" {}=g{}", name, id); }
  template <class T>
  void value(const char* name, T number) {
    text += fmt::format(" {}={}", name, number);
  }
};

struct Collector {
  OpAccess access;
  void in(const char*, TensorId id) { access.reads.push_back(id); }
  void out(const char*, TensorId id) { access.writes.push_back(id); }
  void inout(const char*, TensorId id) {
    access.reads.push_back(id);
    access.writes.push_back(id);
  }
  void weight(const char*, int32_t) {}
  void group(const char*, int32_t) {}
  template <class T>
  void value(const char*, T) {}
};

template <class V>
void visit_fields(const Op& op, V& visitor) {
  std::visit([&](const auto& concrete) { fields(concrete, visitor); }, op);
}

}  // namespace

const char* op_name(int op_index) {
  return kOpNames[op_index];
}
const char* op_name(const Op& op) {
  return kOpNames[op.index()];
}

TensorId OpList::add_tensor(TensorDesc desc) {
  tensors.push_back(std::move(desc));
  return static_cast<TensorId>(tensors.size() - 1);
}

uint32_t OpList::rows_of(TensorId id) const {
  return rows_of(id, num_tokens, num_sampled);
}

uint32_t OpList::rows_of(TensorId id, uint32_t tokens, uint32_t sampled) const {
  switch (tensors[id].rows) {
    case Rows::kTokens:
      return tokens;
    case Rows::kSampled:
      return sampled;
    case Rows::kRouted:
      break;
  }
  return routed_per_row * (num_sampled > 0 ? sampled : tokens);
}

uint64_t OpList::bytes_of(TensorId id) const {
  return static_cast<uint64_t>(rows_of(id)) * tensors[id].columns * dtype_bytes(tensors[id].dtype);
}

OpAccess access(const Op& op) {
  Collector collector;
  visit_fields(op, collector);
  return std::move(collector.access);
}

std::optional<uint32_t> state_group(const Op& op) {
  return std::visit(
      []<class T>(const T& concrete) -> std::optional<uint32_t> {
        if constexpr (requires { concrete.state.kv_group; })
          return concrete.state.kv_group;
        else if constexpr (std::is_same_v<T, RunningSum>)
          return concrete.kv_group;
        else
          return std::nullopt;
      },
      op);
}

std::string print(const OpList& list) {
  std::string text =
      fmt::format("{} T={} R={}{} ops={}\n", list.name, list.num_tokens, list.num_sampled,
                  list.routed_per_row > 0 ? fmt::format(" routed={}", list.routed_per_row) : "", list.ops.size());
  for (const Op& op : list.ops) {
    Printer printer{list, op_name(op)};
    visit_fields(op, printer);
    text += printer.text + "\n";
  }
  return text;
}

Status refuse_routed_rows(const OpList& list) {
  for (const Op& op : list.ops) {
    if (std::holds_alternative<RouteExperts>(op) || std::holds_alternative<ExpertGateUp>(op) ||
        std::holds_alternative<ExpertDown>(op) || std::holds_alternative<ExpertShrink>(op) ||
        std::holds_alternative<ExpertTerm>(op) || std::holds_alternative<ExpertExpand>(op))
      continue;
    const OpAccess touched = access(op);
    for (const auto* ids : {&touched.reads, &touched.writes})
      for (const TensorId id : *ids)
        if (list.tensors[id].rows == Rows::kRouted)
          return make_error(ErrorCode::kUnsupported,
                            "{} list: {}: tensor {}: expected rows of tokens or of samples, found routed", list.name,
                            op_name(op), list.tensors[id].name);
  }
  return {};
}

ArenaPlan plan_arena(const OpList& list, uint64_t alignment_bytes, std::span<const int> lives_with) {
  LLMRT_CHECK(lives_with.size() == list.ops.size(), "lives_with: one for each op");
  const int num_tensors = static_cast<int>(list.tensors.size());
  const int last_op = static_cast<int>(list.ops.size());
  struct Life {
    int first = -1, last = -1;
  };
  std::vector<Life> lives(num_tensors);
  for (int i = 0; i < last_op; ++i) {
    const OpAccess touched = access(list.ops[i]);
    for (const auto* ids : {&touched.reads, &touched.writes}) {
      for (TensorId id : *ids) {
        if (lives[id].first < 0) lives[id].first = i;
        lives[id].last = std::max(lives[id].last, i);
      }
    }
    for (TensorId id : touched.reads) lives[id].last = std::max(lives[id].last, lives_with[i]);
  }
  std::vector<TensorId> order;
  for (TensorId id = 0; id < num_tensors; ++id) {
    if (list.tensors[id].storage == Storage::kPinned) lives[id] = {0, last_op};
    if (list.tensors[id].storage != Storage::kHidden && lives[id].first >= 0) order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](TensorId a, TensorId b) { return list.bytes_of(a) > list.bytes_of(b); });

  ArenaPlan plan;
  plan.offsets.assign(num_tensors, ArenaPlan::kNoOffset);
  for (const Life& life : lives) plan.last_ops.push_back(life.last);
  std::vector<TensorId> placed;  // by offset
  for (TensorId id : order) {
    const uint64_t bytes = round_up(std::max<uint64_t>(list.bytes_of(id), 1), alignment_bytes);
    uint64_t offset = 0;
    for (TensorId other : placed) {
      if (lives[other].last < lives[id].first || lives[id].last < lives[other].first) continue;
      const uint64_t other_bytes = round_up(std::max<uint64_t>(list.bytes_of(other), 1), alignment_bytes);
      if (plan.offsets[other] >= offset + bytes) continue;  // fits before; later ones lie further on
      offset = std::max(offset, plan.offsets[other] + other_bytes);
    }
    plan.offsets[id] = offset;
    plan.bytes = std::max(plan.bytes, offset + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), id,
                                   [&](TensorId a, TensorId b) { return plan.offsets[a] < plan.offsets[b]; }),
                  id);
  }
  return plan;
}

}  // namespace llmrt
