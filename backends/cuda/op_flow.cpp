#include "backends/cuda/op_flow.h"

#include <algorithm>
#include <type_traits>

namespace llmrt::cuda {
namespace {

bool contains(const std::vector<TensorId>& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Ops that make something new of what they read. All others, such as add and scale and any op to come, may stand in a
// pattern's way unnoticed, so patterns are looked for behind them.
template <class T, class... Others>
constexpr bool kIsOneOf = (std::is_same_v<T, Others> || ...);
template <class T>
constexpr bool kMakesNew =
    kIsOneOf<T, UpdateRows, PrepareRows, Embed, RmsNorm, Matmul, QkNorm, Rope, KvWrite, PagedAttention, GatedActivation,
             GatherRows, ApplyPenalties, ApplyBias, Filter, Sample, Logprobs, CopyBlocks, StoreBlocks, LoadBlocks>;

}  // namespace

OpFlow::OpFlow(const OpList& list) : list_(list), writers_(list.tensors.size()), readers_(list.tensors.size()) {
  for (const Op& op : list.ops) {
    const int idx = static_cast<int>(touched_.size());
    touched_.push_back(access(op));
    for (TensorId id : touched_.back().writes) writers_[static_cast<size_t>(id)].push_back(idx);
    for (TensorId id : touched_.back().reads) readers_[static_cast<size_t>(id)].push_back(idx);
  }
}

int OpFlow::writer_before(TensorId tensor, int op) const {
  const std::vector<int>& writers = writers_[static_cast<size_t>(tensor)];
  const auto behind = std::lower_bound(writers.begin(), writers.end(), op);
  return behind == writers.begin() ? -1 : *std::prev(behind);
}

int OpFlow::other_reader(TensorId tensor, int producer, int consumer) const {
  for (int op : readers_[static_cast<size_t>(tensor)]) {
    if (op <= producer || op == consumer) continue;
    if (writer_before(tensor, op) == producer) return op;
  }
  return -1;
}

TensorId OpFlow::in_the_way(int producer, int op) const {
  const OpAccess& early = touched_[static_cast<size_t>(producer)];
  const OpAccess& late = touched_[static_cast<size_t>(op)];
  for (TensorId id : late.writes)
    if (contains(early.reads, id) || contains(early.writes, id)) return id;
  for (TensorId id : late.reads)
    if (contains(early.writes, id)) return id;
  return kNoTensor;
}

bool OpFlow::passes_on(int op) const {
  return std::visit([]<class T>(const T&) { return !kMakesNew<T>; }, list_.ops[static_cast<size_t>(op)]);
}

}  // namespace llmrt::cuda
