// What waits may start: first come, first served, against what the running sequences may still take.
#include <algorithm>

#include "core/schedule/scheduler_impl.h"

namespace llmrt {

void Scheduler::Impl::admit(StepBudget* budget) {
  if (queue.empty() || budget->preempted) return;
  count_promises();
  while (!queue.empty() && budget->chunk_tokens > 0 && !free_slots.empty()) {
    Sequence& sequence = *queue.front();
    if (sequence.pending > 0) return;  // resumed when all its tokens are known
    if (sequence.request.sampling.has_penalties()) {
      if (free_penalty_slots.empty() || sequence.tokens.size() > budget->recount_tokens) return;
    }
    const uint32_t count = std::min(sequence.gap(), budget->chunk_tokens);
    if (sequence.count_within(count, budget->samples) == 0 || !fits(sequence)) return;

    if (sequence.request.sampling.has_penalties()) {
      budget->recount_tokens -= static_cast<uint32_t>(sequence.tokens.size());
    }
    start(sequence);
    take_chunk(sequence, budget);
    LLMRT_CHECK(sequence.step_tokens > 0, "an admitted sequence runs at once");
    for (uint32_t g = 0; g < kv.num_groups(); ++g) {
      const uint32_t blocks = kv.blocks_for(g, sequence.reserved_tokens);
      promised[g] += blocks - std::min(blocks, static_cast<uint32_t>(sequence.tables[g].blocks.size()));
    }
  }
}

void Scheduler::Impl::count_promises() {
  for (uint32_t g = 0; g < kv.num_groups(); ++g) {
    promised[g] = 0;
    for (const Sequence* sequence : running) {
      const uint32_t blocks = kv.blocks_for(g, sequence->reserved_tokens);
      promised[g] += blocks - std::min(blocks, static_cast<uint32_t>(sequence->tables[g].blocks.size()));
    }
  }
}

// Alone in the pool a sequence needs neither watermark nor reservation: what it has may always be computed.
bool Scheduler::Impl::fits(const Sequence& sequence) const {
  const uint32_t num_tokens = static_cast<uint32_t>(sequence.tokens.size());
  const uint32_t reserved = positions_reserved(num_tokens, sequence.positions_max());
  for (uint32_t g = 0; g < kv.num_groups(); ++g) {
    const uint64_t needed = running.empty() ? kv.blocks_for(g, std::min(num_tokens, sequence.positions_max()))
                                            : uint64_t{kv.blocks_for(g, reserved)} + promised[g] + watermark[g];
    if (needed > kv.num_free(g)) return false;
  }
  return true;
}

uint32_t Scheduler::Impl::positions_reserved(uint32_t num_tokens, uint32_t positions_max) const {
  return static_cast<uint32_t>(std::min<uint64_t>(uint64_t{num_tokens} + config.reserve_output_tokens, positions_max));
}

void Scheduler::Impl::start(Sequence& sequence) {
  const bool is_first = sequence.state() == RequestState::kQueued;
  dequeue(sequence);
  sequence.move_to(RequestState::kPrefilling);
  sequence.admission = ++num_admissions;
  sequence.reserved_tokens =
      positions_reserved(static_cast<uint32_t>(sequence.tokens.size()), sequence.positions_max());
  sequence.slot = free_slots.back();
  free_slots.pop_back();
  by_slot[static_cast<size_t>(sequence.slot)] = &sequence;
  if (sequence.request.sampling.has_penalties()) {
    sequence.penalty_slot = free_penalty_slots.back();
    free_penalty_slots.pop_back();
  }
  running.push_back(&sequence);
  if (!is_first) return;
  // All that it will ever hold, so that nothing is allocated while it runs.
  sequence.tables = kv.make_tables(sequence.positions_max());
  sequence.tokens.reserve(size_t{sequence.num_prompt} + sequence.request.max_tokens);
  stats.prompt_tokens += sequence.num_prompt;
}

}  // namespace llmrt
