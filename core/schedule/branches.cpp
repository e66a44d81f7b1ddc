#include "core/schedule/branches.h"

namespace llmrt {

Sequence& Branches::add(std::unique_ptr<Sequence> sequence) {
  const auto [at, is_new] = by_id_.emplace(sequence->request.id, std::move(sequence));
  LLMRT_CHECK(is_new, "a request id is used once");
  return *at->second;
}

Sequence* Branches::find(RequestId id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second.get();
}

std::vector<Sequence*> Branches::of_same(const Sequence& sequence) const {
  std::vector<Sequence*> branches;
  const RequestId first = sequence.request.id - sequence.branch;
  for (uint32_t branch = 0; branch < sequence.request.n; ++branch) branches.push_back(find(first + branch));
  return branches;
}

void Branches::drop_streaming(const Sequence& sequence) {
  --num_streaming_;
  erase(sequence);
}

std::vector<RequestId> Branches::streaming() const {
  std::vector<RequestId> ids;
  for (const auto& [id, sequence] : by_id_)
    if (sequence->state() == RequestState::kStreaming) ids.push_back(id);
  return ids;
}

}  // namespace llmrt
