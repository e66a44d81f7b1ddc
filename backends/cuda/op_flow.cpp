#include "backends/cuda/op_flow.h"

namespace llmrt::cuda {
namespace {

bool contains(const std::vector<TensorId>& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

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
  const Op& concrete = list_.ops[static_cast<size_t>(op)];
  return std::holds_alternative<Add>(concrete) || std::holds_alternative<Scale>(concrete);
}

}  // namespace llmrt::cuda
