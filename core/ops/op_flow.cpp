#include "core/ops/op_flow.h"

#include <algorithm>
#include <type_traits>

namespace llmrt {
namespace {

bool contains(const std::vector<TensorId>& ids, TensorId id) {
  return std::ranges::find(ids, id) != ids.end();
}

template <class T, class... Others>
constexpr bool kIsOneOf = (std::is_same_v<T, Others> || ...);
template <class T>
constexpr bool kMakesNew =
    kIsOneOf<T, UpdateRows, PrepareRows, Embed, RmsNorm, Matmul, QkNorm, JoinedQkNorm, Rope, KvWrite, PagedAttention,
             LatentRows, HeadMatmul, LatentAttention, ExpandLatent, RunningSum, CausalConv, GatedDelta, SelectiveScan,
             GatedNorm, GatedActivation, RouteExperts, ExpertShrink, ExpertTerm, ExpertGateUp, ExpertDown, SoftCap,
             SigmoidGate, GatherRows, ApplyPenalties, ApplyBias, Filter, Sample, Logprobs, CopyBlocks, StoreBlocks,
             LoadBlocks>;

void add(uint32_t op, std::vector<uint32_t>* ops) {
  if (ops->empty() || ops->back() != op) ops->push_back(op);
}

}  // namespace

OpFlow::OpFlow(const OpList& list)
    : list_(list), users_(list.tensors.size()), writers_(list.tensors.size()), readers_(list.tensors.size()) {
  for (uint32_t op = 0; op < list.ops.size(); ++op) {
    const OpAccess& touched = accesses_.emplace_back(access(list.ops[op]));
    for (const TensorId id : touched.reads) add(op, &readers_[static_cast<size_t>(id)]);
    for (const TensorId id : touched.writes) add(op, &writers_[static_cast<size_t>(id)]);
    for (const auto* ids : {&touched.reads, &touched.writes})
      for (const TensorId id : *ids) add(op, &users_[static_cast<size_t>(id)]);
  }
}

std::span<const uint32_t> OpFlow::users_behind(TensorId tensor, uint32_t op) const {
  const std::span<const uint32_t> users(users_[static_cast<size_t>(tensor)]);
  return users.subspan(static_cast<size_t>(std::ranges::upper_bound(users, op) - users.begin()));
}

int OpFlow::writer_before(TensorId tensor, uint32_t op) const {
  const std::vector<uint32_t>& writers = writers_[static_cast<size_t>(tensor)];
  const auto behind = std::ranges::lower_bound(writers, op);
  return behind == writers.begin() ? -1 : static_cast<int>(*std::prev(behind));
}

int OpFlow::other_reader(TensorId tensor, uint32_t producer, uint32_t consumer) const {
  for (const uint32_t op : readers_[static_cast<size_t>(tensor)]) {
    if (op <= producer || op == consumer) continue;
    if (writer_before(tensor, op) == static_cast<int>(producer)) return static_cast<int>(op);
  }
  return -1;
}

TensorId OpFlow::in_the_way(uint32_t producer, uint32_t op) const {
  const OpAccess &early = accesses_[producer], &late = accesses_[op];
  for (const TensorId id : late.writes)
    if (contains(early.reads, id) || contains(early.writes, id)) return id;
  for (const TensorId id : late.reads)
    if (contains(early.writes, id)) return id;
  return kNoTensor;
}

bool OpFlow::passes_on(uint32_t op) const {
  return std::visit([]<class T>(const T&) { return !kMakesNew<T>; }, list_.ops[op]);
}

}  // namespace llmrt
