// The audit: every block, slot and state is accounted for.
#include <algorithm>

#include "core/schedule/scheduler_impl.h"

namespace llmrt {

Status Scheduler::Impl::check_books() const {
  std::vector<KvSpace::Holder> holders;
  for (const Sequence* sequence : running) holders.push_back({sequence->residency.tables, sequence->progress.computed});
  if (Status status = kv.check_books(holders); !status) return status;

  size_t num_penalty_slots = free_penalty_slots.size();
  uint64_t admission = 0;
  for (const Sequence* sequence : running) {
    const RequestId id = sequence->request.id;
    const bool runs = sequence->state() == RequestState::kPrefilling || sequence->state() == RequestState::kDecoding;
    if (!runs) return broken_books("request {} runs in state {}", id, request_state_name(sequence->state()));
    if (!sequence->runs() || by_slot[static_cast<size_t>(sequence->residency.slot)] != sequence) {
      return broken_books("request {}: slot {} is not its own", id, sequence->residency.slot);
    }
    if (sequence->residency.admission <= admission) return broken_books("request {} runs out of order", id);
    admission = sequence->residency.admission;
    if (sequence->residency.penalty_slot >= 0) ++num_penalty_slots;
    for (uint32_t g = 0; g < kv.num_groups(); ++g) {
      const uint32_t expected = kv.blocks_for(g, sequence->progress.computed);
      const size_t found = sequence->residency.tables[g].blocks.size();
      if (found != expected) {
        return broken_books("request {}: expected {} blocks for {} tokens, found {}", id, expected,
                            sequence->progress.computed, found);
      }
    }
  }
  if (free_slots.size() + running.size() != config.sequences_max) {
    return broken_books("expected {} slots, found {} free + {} running", config.sequences_max, free_slots.size(),
                        running.size());
  }
  if (num_penalty_slots != config.penalty_rows_max) {
    return broken_books("expected {} penalty slots, found {}", config.penalty_rows_max, num_penalty_slots);
  }

  const auto is_of_batch = [this](const Sequence* sequence) { return sequence->ticket.batch == batch.number; };
  size_t num_of_batch = static_cast<size_t>(std::ranges::count_if(running, is_of_batch));
  if (num_of_batch != running.size())
    return broken_books("batch {}: {} run, {} of them belong to it", batch.number, running.size(), num_of_batch);
  for (const Lane lane : kLanes) {
    const size_t i = static_cast<size_t>(lane);
    const auto rows = std::ranges::count(running, lane, &Sequence::lane);
    if (rows != num_rows[i]) return broken_books("lane {}: expected {} rows, found {}", i, rows, num_rows[i]);
    for (const auto& [place, sequence] : waiting.queue(lane)) num_of_batch += is_of_batch(sequence);
  }
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
