#include "core/schedule/yields.h"

namespace llmrt {

// The tokens stay: what is lost of their keys and values is computed again, a token in flight is taken when it comes.
void Yields::preempt(Sequence& sequence, RequestId wanted_by) {
  const CostModel& cost = parts_.pace.cost();
  parts_.draft.give_up(sequence);
  Preemption event{.request_id = sequence.request.id,
                   .wanted_by = wanted_by,
                   .computed_tokens = sequence.progress.computed,
                   .num_blocks = 0,
                   .times = ++sequence.record.num_preemptions};
  for (const BlockTable& table : sequence.residency.tables) event.num_blocks += table.num_held();
  event.recompute_ms = cost.recompute_ms(sequence.progress.computed);
  event.swap_ms = cost.swap_ms(parts_.kv.move_blocks(sequence.residency.tables));
  event.swapped = is_worth_storing(sequence);
  stop(sequence, /*forget=*/false);
  sequence.move_to(RequestState::kPreempted);
  parts_.waiting.add(sequence);
  // A wanter that still waits has no reservation to outgrow; one that yields to itself had.
  const Sequence* wanter = parts_.branches.find(wanted_by);
  const bool wanter_ran = wanter == &sequence || (wanter != nullptr && wanter->runs());
  parts_.journal.note_preemption(event, wanter_ran && wanter->progress.computed >= wanter->residency.reserved_tokens);
}

void Yields::begin_again(Sequence& sequence, const std::vector<int32_t>& tokens) {
  if (sequence.runs()) {
    stop(sequence, /*forget=*/false);
    sequence.move_to(RequestState::kPreempted);
  } else {
    parts_.waiting.remove(sequence);
  }
  sequence.tokens = tokens;
  parts_.waiting.add(sequence);
}

void Yields::stop(Sequence& sequence, bool forget) {
  parts_.prefixes.give_back(sequence, forget, is_worth_storing(sequence));
  parts_.running.release(sequence);
}

// What a running sequence has computed, should others need its blocks while it waits or after it ended.
bool Yields::is_worth_storing(const Sequence& sequence) const {
  if (parts_.kv.host() == nullptr) return false;
  if (parts_.config.on_exhaustion == OnExhaustion::kSwap) return true;
  if (parts_.config.on_exhaustion == OnExhaustion::kRecompute) return false;
  const CostModel& cost = parts_.pace.cost();
  return cost.swap_ms(parts_.kv.move_blocks(sequence.residency.tables)) < cost.recompute_ms(sequence.progress.computed);
}

}  // namespace llmrt
