#include "core/schedule/reclaim.h"

#include <algorithm>

#include "core/schedule/victims.h"

namespace llmrt {

bool Reclaim::make_room(const Sequence& sequence, uint64_t round) {
  const Lane lane = sequence.lane();
  const Running& running = parts_.running;
  LaneCounts rows = running.lane_rows();
  if (reserves_all(parts_.config.on_exhaustion) || rows[static_cast<size_t>(lane)] + 1 > entitled_rows(lane))
    return false;
  if (sequence.request.sampling.has_penalties() && !running.has_penalty_slot()) return false;
  std::vector<uint64_t> missing = parts_.reservations.missing_blocks(sequence);
  bool has_slot = running.has_slot();
  const auto is_enough = [&] { return has_slot && std::ranges::all_of(missing, [](uint64_t n) { return n == 0; }); };

  std::vector<Sequence*> lent;
  for (Sequence* other : yield_order(running.rows())) {
    if (is_enough() || other->lane() <= lane) break;
    uint32_t& left = rows[static_cast<size_t>(other->lane())];
    if (left <= entitled_rows(other->lane()) || other->ticket.tried_in == round) continue;
    --left;
    lent.push_back(other);
    has_slot = true;
    for (uint32_t g = 0; g < missing.size(); ++g)
      missing[g] -= std::min(missing[g], parts_.reservations.yielded_blocks(g, *other));
  }
  if (!is_enough()) return false;
  for (Sequence* other : lent) parts_.yields.preempt(*other, sequence.request.id);
  parts_.journal.note_reclaims(lent.size());
  parts_.reservations.count(running.rows());
  return true;
}

double Reclaim::entitled_rows(Lane lane) const {
  return parts_.fairness.entitled_rows(lane, parts_.running.lane_rows(), parts_.waiting.lanes());
}

}  // namespace llmrt
