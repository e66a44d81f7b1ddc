// Who yields when a running sequence needs a block and none is free, and what becomes of its keys and values.
//
// Those that yielded often are spared: the order is by how often a sequence has yielded beyond the first time, then the
// newest first. So nobody runs in circles, and when all are spared the one that yielded least yields again. What a
// sequence had computed stays in the prefix cache until others take its blocks; where swapping is cheaper than
// computing again those blocks are stored in the host tier first.
#include <algorithm>

#include "core/schedule/scheduler_impl.h"

namespace llmrt {
namespace {

constexpr uint32_t kSparedFrom = 2;  // times that a sequence has yielded

uint32_t protection(const Sequence& sequence) {
  return sequence.num_preemptions < kSparedFrom ? 0 : sequence.num_preemptions;
}

}  // namespace

Sequence& Scheduler::Impl::pick_victim() const {
  const auto yields_before = [](const Sequence* a, const Sequence* b) {
    if (protection(*a) != protection(*b)) return protection(*a) < protection(*b);
    return a->admission > b->admission;
  };
  return **std::ranges::min_element(running, yields_before);
}

void Scheduler::Impl::preempt(Sequence& sequence, RequestId wanted_by, StepBudget* budget) {
  budget->tokens += sequence.step_tokens;
  budget->samples += sequence.samples_for(sequence.step_tokens);
  budget->bias_entries += bias_entries_of(sequence, sequence.step_tokens);
  budget->preempted = true;
  sequence.step_tokens = 0;
  running.erase(std::ranges::find(running, &sequence));
  Preemption event{.request_id = sequence.request.id,
                   .wanted_by = wanted_by,
                   .computed_tokens = sequence.computed,
                   .num_blocks = 0,
                   .times = ++sequence.num_preemptions};
  for (const BlockTable& table : sequence.tables) event.num_blocks += static_cast<uint32_t>(table.blocks.size());
  event.recompute_ms = cost.recompute_ms(sequence.computed);
  event.swap_ms = cost.swap_ms(event.num_blocks);
  event.swapped = is_worth_storing(sequence);
  preemptions.push_back(event);
  give_back(sequence, /*forget=*/false);
  // The tokens stay: what is lost of their keys and values is computed again, a token in flight is taken when it comes.
  sequence.move_to(RequestState::kPreempted);
  enqueue(sequence, queue.begin());
  ++stats.num_preemptions;
  stats.num_swaps += event.swapped;
}

// What a running sequence has computed, should others need its blocks while it waits or after it ended.
bool Scheduler::Impl::is_worth_storing(const Sequence& sequence) const {
  if (kv.host() == nullptr) return false;
  if (config.on_exhaustion == OnExhaustion::kSwap) return true;
  if (config.on_exhaustion == OnExhaustion::kRecompute) return false;
  return cost.swap_ms(sequence.tables[0].blocks.size()) < cost.recompute_ms(sequence.computed);
}

}  // namespace llmrt
