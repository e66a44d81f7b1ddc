// Who yields when a running sequence needs a block and none is free (victims.h), and what becomes of its keys and
// values. Rows that a lane has beyond its share are lent: a higher lane that has less than its own takes them back for
// a request that finds no room. A lower lane waits until an answer ends. What a sequence had computed stays in the
// prefix cache until others take its blocks; where swapping is cheaper than computing again those blocks are stored in
// the host tier first.
#include <algorithm>

#include "core/schedule/scheduler_impl.h"
#include "core/schedule/victims.h"

namespace llmrt {
// True when others have yielded, so that the sequence should fit now. Nobody yields unless enough can; but blocks that
// several hold may turn out to stay.
bool Scheduler::Impl::reclaim_room(const Sequence& sequence) {
  const Lane lane = sequence.lane();
  if (reserves_all(config.on_exhaustion) || running.lane_rows()[static_cast<size_t>(lane)] + 1 > entitled_rows(lane))
    return false;
  if (sequence.request.sampling.has_penalties() && !running.has_penalty_slot()) return false;
  std::vector<uint64_t> missing = reservations.missing_blocks(sequence);
  bool has_slot = running.has_slot();
  const auto is_enough = [&] { return has_slot && std::ranges::all_of(missing, [](uint64_t n) { return n == 0; }); };

  std::vector<Sequence*> lent;
  LaneCounts rows = running.lane_rows();
  for (Sequence* other : yield_order(running.rows())) {
    if (is_enough() || other->lane() <= lane) break;
    uint32_t& left = rows[static_cast<size_t>(other->lane())];
    if (left <= entitled_rows(other->lane()) || other->ticket.tried_in == num_rounds)
      continue;  // it has just been admitted
    --left;
    lent.push_back(other);
    has_slot = true;
    for (uint32_t g = 0; g < kv.num_groups(); ++g) {
      missing[g] -= std::min(missing[g], reservations.yielded_blocks(g, *other));
    }
  }
  if (!is_enough()) return false;
  for (Sequence* other : lent) preempt(*other, sequence.request.id);
  journal.note_reclaims(lent.size());
  reservations.count(running.rows());
  return true;
}

void Scheduler::Impl::preempt(Sequence& sequence, RequestId wanted_by) {
  draft.give_up(sequence);
  admits = false;
  Preemption event{.request_id = sequence.request.id,
                   .wanted_by = wanted_by,
                   .computed_tokens = sequence.progress.computed,
                   .num_blocks = 0,
                   .times = ++sequence.record.num_preemptions};
  for (const BlockTable& table : sequence.residency.tables)
    event.num_blocks += static_cast<uint32_t>(table.blocks.size());
  event.recompute_ms = pace.cost().recompute_ms(sequence.progress.computed);
  event.swap_ms = pace.cost().swap_ms(event.num_blocks);
  event.swapped = is_worth_storing(sequence);
  give_back(sequence, /*forget=*/false);
  // The tokens stay: what is lost of their keys and values is computed again, a token in flight is taken when it comes.
  sequence.move_to(RequestState::kPreempted);
  waiting.add(sequence);
  // Who still waits (reclaim_room, yield_idle_beams) has no reservation to outgrow; one that yields to itself had.
  const Sequence* wanter = branches.find(wanted_by);
  const bool wanter_ran = wanter == &sequence || (wanter != nullptr && wanter->runs());
  journal.note_preemption(event, wanter_ran && wanter->progress.computed >= wanter->residency.reserved_tokens);
}

// What a running sequence has computed, should others need its blocks while it waits or after it ended.
bool Scheduler::Impl::is_worth_storing(const Sequence& sequence) const {
  if (kv.host() == nullptr) return false;
  if (config.on_exhaustion == OnExhaustion::kSwap) return true;
  if (config.on_exhaustion == OnExhaustion::kRecompute) return false;
  return pace.cost().swap_ms(sequence.residency.tables[0].blocks.size()) <
         pace.cost().recompute_ms(sequence.progress.computed);
}

}  // namespace llmrt
