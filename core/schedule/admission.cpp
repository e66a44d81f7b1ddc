#include "core/schedule/admission.h"

#include <algorithm>

namespace llmrt {
namespace {

constexpr uint32_t kTriesMax = 8;  // of requests of one lane that find no room, in one step

}  // namespace

void Admission::begin_step(uint64_t plan) {
  plan_ = plan;
  is_open_ = true;
  is_closed_ = {};
}

void Admission::reopen() {
  is_open_ = true;
  is_closed_ = {};
  begin_round();
}

void Admission::begin_round() {
  if (!is_open_) return;
  ++round_;
  passed_over_.clear();
  is_room_scarce_ = false;
  parts_.reservations.count(parts_.running.rows());
}

void Admission::admit(Lane lane, TimeNs now) {
  bool reclaimed = false;
  uint32_t num_without_room = 0;
  bool& is_closed = is_closed_[static_cast<size_t>(lane)];
  while (is_open_ && !is_closed && parts_.draft.chunk_tokens() > 0 && num_without_room < kTriesMax) {
    Sequence* sequence = parts_.start_order.next(lane, round_, plan_);
    if (sequence == nullptr) break;
    sequence->ticket.tried_in = round_;
    // Beside others that held the same blocks it has outgrown the pool, and there will never be room.
    const uint32_t positions = std::min(sequence->num_known(), sequence->positions_max());
    if (sequence->progress.in_flight.is_empty() && !parts_.kv.can_hold(positions)) {
      parts_.exits.end_exhausted(*sequence, positions, now);
      continue;
    }
    Answer answer = try_start(*sequence, now);
    if (answer == Answer::kNoRoom && parts_.reclaim.make_room(*sequence, round_)) {
      reclaimed = true;
      answer = try_start(*sequence, now);
    }
    if (answer == Answer::kStarted || answer == Answer::kEnded) continue;
    const bool goes_first = sequence->state() == RequestState::kPreempted || StartOrder::is_aged(*sequence);
    if (answer == Answer::kLater) {
      is_closed = goes_first;
    } else if (must_reject(*sequence)) {
      parts_.exits.reject(*sequence, no_room(*sequence), now);
    } else {
      is_room_scarce_ = true;
      passed_over_.push_back(sequence);
      is_open_ = is_open_ && !goes_first;
      num_without_room = !parts_.running.has_slot() ? kTriesMax : num_without_room + 1;
    }
  }
  is_open_ = is_open_ && !reclaimed;
}

Admission::Answer Admission::try_start(Sequence& sequence, TimeNs now) {
  const Running& running = parts_.running;
  if (!sequence.progress.in_flight.is_empty()) return Answer::kLater;  // resumed when all its tokens are known
  const bool counts = sequence.request.sampling.has_penalties();
  if (!running.has_slot() || (counts && !running.has_penalty_slot())) return Answer::kNoRoom;
  if (!parts_.draft.can_recount(sequence)) return Answer::kLater;
  // Long prompts are not looked up in every step of a full pool that admits none.
  if (parts_.reservations.is_known_short(sequence, running)) return Answer::kNoRoom;
  if (sequence.found.is_known && !parts_.draft.can_take_over(sequence.found)) return Answer::kLater;
  if (const std::optional<Answer> answer = wait_for_adapter(sequence, now)) return *answer;
  if (parts_.prefixes.waits_for_disk(sequence, now)) {
    sequence.ticket.is_held = true;
    return Answer::kLater;
  }

  PrefixMatch match = parts_.prefixes.look_up(sequence, running.rows());
  if (!parts_.draft.can_take_over(sequence.found)) return Answer::kLater;
  if (!parts_.reservations.fits(sequence, &match, running)) return Answer::kNoRoom;
  sequence.progress.computed = match.num_tokens(parts_.kv.block_tokens());
  sequence.progress.undone = 0;
  const uint32_t chunk = std::min(sequence.gap(), parts_.draft.chunk_tokens());
  if (parts_.draft.count_that_fits(sequence, chunk) == 0) return Answer::kLater;

  parts_.draft.take_payload(sequence, match);
  parts_.starts.start(sequence, match, passed_over_, now);
  parts_.chunks.take(sequence);
  LLMRT_CHECK(sequence.take.tokens > 0, "an admitted sequence runs at once");
  parts_.reservations.promise(sequence);
  return Answer::kStarted;
}

// One whose adapter finds no room counts as overtaken by those that start meanwhile: so in the end it holds them up,
// and rows that hold adapters become fewer. Nothing: it has its adapter, or none.
std::optional<Admission::Answer> Admission::wait_for_adapter(Sequence& sequence, TimeNs now) {
  if (sequence.request.adapter_id == 0 || parts_.config.adapters == nullptr) return std::nullopt;
  const Result<AdapterState> state = parts_.config.adapters->state_of(sequence.request, now);
  if (!state) {
    parts_.exits.refuse(sequence, state.error(), now);
    return Answer::kEnded;
  }
  sequence.ticket.is_held = *state == AdapterState::kLoading;
  if (*state == AdapterState::kReady) return std::nullopt;
  return Answer::kLater;
}

// Where nothing may wait for room: a request of which no branch has begun.
bool Admission::must_reject(const Sequence& sequence) const {
  if (parts_.config.on_exhaustion != OnExhaustion::kReject) return false;
  return std::ranges::all_of(parts_.branches.of_same(sequence), [](const Sequence* branch) {
    return branch != nullptr && branch->state() == RequestState::kQueued;
  });
}

Error Admission::no_room(const Sequence& sequence) const {
  if (!parts_.running.has_slot())
    return make_error(ErrorCode::kOverloaded, "no room now: {} requests run, which is the most", parts_.running.size());
  if (sequence.request.sampling.has_penalties() && !parts_.running.has_penalty_slot())
    return make_error(ErrorCode::kOverloaded, "no room now: {} requests with penalties run, which is the most",
                      parts_.config.penalty_rows_max);
  return parts_.reservations.no_room(sequence);
}

}  // namespace llmrt
