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
  size_t num_waiting = 0;
  uint64_t waiting_bytes = 0;
  for (const Lane lane : kLanes) {
    const size_t i = static_cast<size_t>(lane);
    const auto rows = std::ranges::count(running, lane, &Sequence::lane);
    if (rows != num_rows[i]) return broken_books("lane {}: expected {} rows, found {}", i, rows, num_rows[i]);
    uint64_t waiting_tokens = 0;
    size_t num_plain = 0;
    for (const auto& [place, sequence] : queues[i]) {
      const RequestId id = sequence->request.id;
      const bool waits = sequence->state() == RequestState::kQueued || sequence->state() == RequestState::kPreempted;
      if (!waits) return broken_books("request {} waits in state {}", id, request_state_name(sequence->state()));
      if (sequence->runs()) return broken_books("request {} waits with a slot", id);
      if (sequence->lane() != lane) return broken_books("request {} waits in another's lane", id);
      waiting_tokens += sequence->ticket.queued_tokens;
      waiting_bytes += sequence->ticket.queued_bytes;
      num_plain += plain_queues[i].contains(place);
      num_of_batch += is_of_batch(sequence);
    }
    num_waiting += queues[i].size();
    if (num_plain != plain_queues[i].size())
      return broken_books("queue {}: {} wait without penalties, of these {} as all do", i, plain_queues[i].size(),
                          num_plain);
    if (waiting_tokens != queue_tokens[i].load(std::memory_order_relaxed))
      return broken_books("queue {}: expected {} tokens, found {}", i, waiting_tokens, queue_tokens[i].load());
  }
  if (num_waiting != queue_branches.load() || waiting_bytes != queue_bytes.load())
    return broken_books("queues: expected {} branches of {} bytes, found {} of {}", num_waiting, waiting_bytes,
                        queue_branches.load(), queue_bytes.load());
  if (batch.number > 0 && num_of_batch != batch.num_left)
    return broken_books("batch {}: expected {} that have not ended, found {}", batch.number, batch.num_left,
                        num_of_batch);
  if (sequences.size() != running.size() + num_waiting + num_streaming) {
    return broken_books("expected {} requests, found {} running + {} waiting + {} streaming", sequences.size(),
                        running.size(), num_waiting, num_streaming);
  }
  return {};
}

}  // namespace llmrt
