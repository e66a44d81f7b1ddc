// What waits may start, against what the running sequences may still take.
#include <algorithm>

#include "core/schedule/scheduler_impl.h"

namespace llmrt {
namespace {

constexpr uint32_t kTriesMax = 8;  // of requests of one lane that find no room, in one step

}  // namespace

// Who does not fit is passed over, at most kOvertakenMax times. Then he, or one who had to yield, holds up the others
// of his lane and the lanes whose turn comes after his.
void Scheduler::Impl::admit(Lane lane, TimeNs now) {
  bool reclaimed = false;
  uint32_t num_without_room = 0;
  bool& is_lane_closed = is_closed[static_cast<size_t>(lane)];  // a lane may be asked twice in a round
  while (admits && !is_lane_closed && draft.chunk_tokens() > 0 && num_without_room < kTriesMax) {
    Sequence* sequence = start_order.next(lane, num_rounds, plans.num_plans() + 1);
    if (sequence == nullptr) break;
    sequence->ticket.tried_in = num_rounds;
    // Beside others that held the same blocks it has outgrown the pool, and there will never be room.
    const uint32_t positions = std::min(sequence->num_known(), sequence->positions_max());
    if (sequence->progress.pending == 0 && !kv.can_hold(positions)) {
      end_exhausted(*sequence, positions, now);
      continue;
    }
    Admission admission = try_admit(*sequence);
    if (admission == Admission::kNoRoom && reclaim_room(*sequence)) {
      admits = reclaimed = true;
      admission = try_admit(*sequence);
    }
    if (admission == Admission::kDone) continue;
    const bool goes_first = sequence->state() == RequestState::kPreempted || StartOrder::is_aged(*sequence);
    if (admission == Admission::kLater) {
      is_lane_closed = goes_first;
    } else if (must_refuse(*sequence)) {
      refuse(*sequence, now);
    } else {
      room_is_scarce = true;
      passed_over.push_back(sequence);
      admits = admits && !goes_first;
      num_without_room = !running.has_slot() ? kTriesMax : num_without_room + 1;
    }
  }
  admits = admits && !reclaimed;
}

void Scheduler::Impl::begin_admission() {
  ++num_rounds;
  passed_over.clear();
  room_is_scarce = false;
  reservations.count(running.rows());
}

// Where nothing may wait for room: a request of which no branch has begun.
bool Scheduler::Impl::must_refuse(const Sequence& sequence) const {
  if (config.on_exhaustion != OnExhaustion::kReject) return false;
  return std::ranges::all_of(branches.of_same(sequence), [](const Sequence* branch) {
    return branch != nullptr && branch->state() == RequestState::kQueued;
  });
}

void Scheduler::Impl::refuse(Sequence& sequence, TimeNs now) {
  const Error error = no_room(sequence);
  journal.note_rejected();
  for (Sequence* branch : branches.of_same(sequence))
    end(*branch, RequestState::kRejected, {.error = error}, FinishReason::kError, now);
}

Error Scheduler::Impl::no_room(const Sequence& sequence) const {
  if (!running.has_slot())
    return make_error(ErrorCode::kOverloaded, "no room now: {} requests run, which is the most", running.size());
  if (sequence.request.sampling.has_penalties() && !running.has_penalty_slot())
    return make_error(ErrorCode::kOverloaded, "no room now: {} requests with penalties run, which is the most",
                      config.penalty_rows_max);
  return reservations.no_room(sequence);
}

Scheduler::Impl::Admission Scheduler::Impl::try_admit(Sequence& sequence) {
  if (sequence.progress.pending > 0) return Admission::kLater;  // resumed when all its tokens are known
  const bool counts = sequence.request.sampling.has_penalties();
  if (!running.has_slot() || (counts && !running.has_penalty_slot())) return Admission::kNoRoom;
  if (!draft.can_recount(sequence)) return Admission::kLater;
  // Long prompts are not looked up in every step of a full pool that admits nobody.
  if (reservations.is_known_short(sequence, running)) return Admission::kNoRoom;

  if (sequence.found.is_known && !draft.can_take_over(sequence.found)) return Admission::kLater;

  PrefixMatch match = prefixes.look_up(sequence, running.rows());
  if (!draft.can_take_over(sequence.found)) return Admission::kLater;
  if (!reservations.fits(sequence, &match, running)) return Admission::kNoRoom;
  sequence.progress.computed = match.num_tokens(kv.block_tokens());
  if (draft.count_that_fits(sequence, std::min(sequence.gap(), draft.chunk_tokens())) == 0) return Admission::kLater;

  draft.take_payload(sequence, match);
  start(sequence, match);
  take_chunk(sequence);
  LLMRT_CHECK(sequence.take.tokens > 0, "an admitted sequence runs at once");
  reservations.promise(sequence);
  return Admission::kDone;
}

void Scheduler::Impl::start(Sequence& sequence, const PrefixMatch& match) {
  const bool is_first = sequence.state() == RequestState::kQueued;
  start_order.count_overtaken(sequence, passed_over);
  waiting.remove(sequence);
  sequence.move_to(RequestState::kPrefilling);
  if (!sequence.beam.search) {
    timeouts.set(sequence);
  } else {
    for (Sequence* beam : branches.of_same(sequence)) {
      beam->request.start_by_ns = 0;  // they start together
      timeouts.set(*beam);
    }
  }
  running.admit(sequence);
  sequence.residency.reserved_tokens = reservations.positions(sequence);
  if (is_first) {
    // All that it will ever hold, so that nothing is allocated while it runs.
    sequence.residency.tables = kv.make_tables(sequence.positions_max());
    sequence.tokens.reserve(size_t{sequence.num_prompt} + sequence.request.max_tokens);
    if (sequence.request.max_tokens > 1) sequence.record.times.inter_token = std::make_unique<LatencySketch>();
  }
  if (is_first && sequence.branch == 0) {
    sequence.record.cached_tokens = sequence.progress.computed;
    pace.note_served(sequence.record.cached_tokens);
    journal.note_start(sequence, config.prefix_cache != PrefixCacheKind::kOff,
                       match.host_blocks.size() * kv.block_tokens());
  }
  prefixes.take_over(sequence, match);
}

}  // namespace llmrt
