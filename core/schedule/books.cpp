// The audit: every block, slot and state is accounted for.
#include <algorithm>

#include "core/schedule/scheduler_impl.h"

namespace llmrt {

Status Scheduler::Impl::check_books() const {
  std::vector<KvSpace::Holder> holders;
  for (const Sequence* sequence : running.rows())
    holders.push_back({sequence->residency.tables, sequence->progress.computed});
  if (Status status = kv.check_books(holders); !status) return status;

  if (Status status = running.check(); !status) return status;
  for (const Sequence* sequence : running.rows()) {
    for (uint32_t g = 0; g < kv.num_groups(); ++g) {
      const uint32_t expected = kv.blocks_for(g, sequence->progress.computed);
      const size_t found = sequence->residency.tables[g].blocks.size();
      if (found == expected) continue;
      return broken_books("request {}: expected {} blocks for {} tokens, found {}", sequence->request.id, expected,
                          sequence->progress.computed, found);
    }
  }

  const auto is_of_batch = [this](const Sequence* sequence) { return sequence->ticket.batch == batch.number; };
  size_t num_of_batch = static_cast<size_t>(std::ranges::count_if(running.rows(), is_of_batch));
  if (num_of_batch != running.size())
    return broken_books("batch {}: {} run, {} of them belong to it", batch.number, running.size(), num_of_batch);
  for (const Waiting::Queue& queue : waiting.queues())
    for (const auto& [place, sequence] : queue) num_of_batch += is_of_batch(sequence);
  if (Status status = waiting.check(); !status) return status;
  if (batch.number > 0 && num_of_batch != batch.num_left)
    return broken_books("batch {}: expected {} that have not ended, found {}", batch.number, batch.num_left,
                        num_of_batch);
  if (branches.size() != running.size() + waiting.size() + branches.num_streaming()) {
    return broken_books("expected {} requests, found {} running + {} waiting + {} streaming", branches.size(),
                        running.size(), waiting.size(), branches.num_streaming());
  }
  return {};
}

}  // namespace llmrt
