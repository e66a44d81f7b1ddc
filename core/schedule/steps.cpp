#include "core/schedule/steps.h"

#include <algorithm>

#include "core/schedule/victims.h"

namespace llmrt {
namespace {

// A row that needs one token now: it is behind by one, or it scores its prompt and must not starve of sampled rows.
bool is_unit(const Sequence& sequence) {
  return sequence.gap() == 1 || (sequence.gap() > 1 && sequence.progress.scored < sequence.num_prompt);
}

// It decodes, and no client waits for its next token.
bool is_patient(const Sequence& sequence) {
  return sequence.lane() > Lane::kAgent && sequence.gap() == 1;
}

}  // namespace

Steps::Steps(const Parts& parts) : parts_(parts) {
  taking_.reserve(parts.config.sequences_max);
  behind_.reserve(parts.config.sequences_max);
}

void Steps::fill(uint64_t plan, bool has_in_flight, TimeNs now) {
  const StepDraft& draft = parts_.draft;
  parts_.draft.begin();
  parts_.admission.begin_step(plan);
  if (parts_.admission.is_room_scarce()) yield_paused();
  leaves_out_ = left_out_in_ + 1 != plan && awaits_long_prompt();  // not twice in a row
  take_units(now);
  take_prompts(now);
  if (leaves_out_ && !draft.is_long()) take_left_out(now);
  if (!has_in_flight) yield_idle_beams(now);
  parts_.drafts.take(plan);
  if (leaves_out_ && !draft.is_empty()) left_out_in_ = plan;
}

// Whether this step is likely to end a long prompt: of a request that has just come, or that runs while nothing else of
// its lane waits. One that has found no room does not know when there will be some, and where several wait it is the
// queue that they wait for.
bool Steps::awaits_long_prompt() const {
  if (!parts_.running.has_patient_rows()) return false;
  const auto is_long = [this](uint64_t rest) { return parts_.pace.is_long_end(rest, /*has_patient_rows=*/true); };
  for (const Lane lane : {Lane::kInteractive, Lane::kAgent}) {
    const Waiting::Queue& queue = parts_.waiting.queue(lane);
    const Sequence* first = queue.empty() ? nullptr : queue.begin()->second;
    if (queue.size() > 1 || (first != nullptr && first->ticket.tried_in != 0)) continue;
    if (first != nullptr && is_long(first->num_known())) return true;
    for (const Sequence* sequence : parts_.running.rows())
      if (sequence->lane() == lane && !sequence->is_paused && is_long(sequence->gap())) return true;
  }
  return false;
}

void Steps::take_units(TimeNs now) {
  StepDraft& draft = parts_.draft;
  taking_.assign(parts_.running.rows().begin(), parts_.running.rows().end());
  const auto first = std::ranges::find_if(
      taking_, [this](const Sequence* sequence) { return sequence->residency.admission >= turn_; });
  std::rotate(taking_.begin(), first, taking_.end());
  turn_ = 0;
  for (Sequence* const each : taking_) {
    Sequence& sequence = *each;
    if (!sequence.runs() || !is_unit(sequence)) continue;  // it had to yield, or ended
    if (sequence.is_paused || (leaves_out_ && is_patient(sequence))) continue;
    if (sequence.draws(1) && draft.waits_for_changes(sequence)) continue;
    if (draft.tokens_left() == 0 || draft.count_that_fits(sequence, 1) == 0) {
      if (turn_ == 0) turn_ = sequence.residency.admission;
    } else if (make_room(sequence, sequence.progress.computed + 1, now)) {
      draft.take(sequence, 1);
    }
  }
}

// Prompts of batch and background do not lengthen the steps of interactive rows and those of agents.
void Steps::count_waiting(StepSoFar* step) const {
  const auto is_asked = [](Lane lane) { return lane <= Lane::kAgent; };
  const auto rows = parts_.running.rows();
  const bool asked_alone = std::ranges::any_of(
      rows, [&](const Sequence* sequence) { return is_asked(sequence->lane()) && sequence->gap() <= 1; });
  const auto count = [&](const Sequence& sequence, uint32_t num_tokens) {
    step->waiting_tokens += num_tokens;
    const TimeNs since = sequence.request.arrival_ns;
    if (step->waits_since_ns == 0 || since < step->waits_since_ns) step->waits_since_ns = since;
  };
  for (const Sequence* sequence : rows)
    if (sequence->gap() > 1 && (!asked_alone || is_asked(sequence->lane()))) count(*sequence, sequence->gap());
  for (const Lane lane : kLanes) {
    const Waiting::Queue& queue = parts_.waiting.queue(lane);
    if (queue.empty() || (asked_alone && !is_asked(lane))) continue;
    count(*queue.begin()->second, 0);
    step->waiting_tokens += parts_.waiting.tokens(lane);
  }
}

// While room is scarce the lane that has the least of it is asked before the others, in its turn.
void Steps::take_prompts(TimeNs now) {
  StepDraft& draft = parts_.draft;
  Admission& admission = parts_.admission;
  StepSoFar step = draft.so_far(parts_.running.rows());
  if (parts_.config.chunks_by_need && step.others_decode) count_waiting(&step);
  draft.set_chunk_tokens(parts_.pace.chunk_tokens(step, draft.tokens_left(), now));
  behind_.clear();
  for (Sequence* sequence : parts_.running.rows()) {
    if (sequence->is_paused || (leaves_out_ && is_patient(*sequence))) continue;
    if (sequence->draws(1) && draft.waits_for_changes(*sequence)) continue;
    if (sequence->gap() > sequence->take.tokens) behind_.push_back(sequence);
  }
  const LaneOrder turns = order_for_prefill(now), by_room = order_for_room(now);
  const bool was_scarce = admission.is_room_scarce();
  const auto first = std::ranges::find_if(by_room, [this](Lane lane) { return !parts_.waiting.queue(lane).empty(); });
  admission.begin_round();
  for (const Lane lane : turns) {
    for (Sequence* sequence : behind_)
      if (sequence->lane() == lane && sequence->runs()) parts_.chunks.take(*sequence);
    if (!was_scarce || (first != by_room.end() && lane == *first)) admission.admit(lane, now);
  }
  if (!was_scarce) return;
  for (const Lane lane : by_room) admission.admit(lane, now);
}

// No long prompt has come. Where others have been admitted meanwhile none yields for a block: a row that needs one and
// finds none has the next step.
void Steps::take_left_out(TimeNs now) {
  StepDraft& draft = parts_.draft;
  leaves_out_ = false;
  if (draft.is_empty()) return take_units(now);
  for (Sequence* const sequence : parts_.running.rows()) {
    if (sequence->take.tokens > 0 || sequence->is_paused || !is_patient(*sequence)) continue;
    if (draft.tokens_left() == 0 || draft.count_that_fits(*sequence, 1) == 0) continue;
    if (parts_.kv.grow(sequence->residency.tables, sequence->progress.computed + 1)) draft.take(*sequence, 1);
  }
}

// When nothing else can run or is in flight, beams that wait for the others of their request hold what those need.
void Steps::yield_idle_beams(TimeNs now) {
  const auto is_asked = [](const Sequence* sequence) { return sequence->beam.is_asked; };
  const auto next_or = [this](Sequence& otherwise) -> Sequence& {
    for (const Waiting::Queue& queue : parts_.waiting.queues())
      for (const auto& [place, sequence] : queue)
        if (!sequence->beam.is_asked) return *sequence;
    return otherwise;
  };
  while (parts_.draft.is_empty() && std::ranges::any_of(parts_.running.rows(), is_asked)) {
    Sequence& newest = *parts_.running.rows().back();
    parts_.yields.preempt(newest, next_or(newest).request.id);
    parts_.admission.reopen();
    for (const Lane lane : order_for_room(now)) parts_.admission.admit(lane, now);
  }
}

Sequence* Steps::next_to_start() const {
  for (const Waiting::Queue& queue : parts_.waiting.queues())
    for (const auto& [place, sequence] : queue)
      if (!sequence->is_paused) return sequence;
  return nullptr;
}

// What a paused row has would be of use to those that wait. Not where all that is admitted keeps its room to its end.
void Steps::yield_paused() {
  if (reserves_all(parts_.config.on_exhaustion)) return;
  const Sequence* waiting = next_to_start();
  const auto rows = parts_.running.rows();
  const auto newest = std::find_if(rows.rbegin(), rows.rend(), [](const Sequence* row) { return row->is_paused; });
  if (waiting != nullptr && newest != rows.rend()) parts_.yields.preempt(**newest, waiting->request.id);
}

// Blocks for that many positions, taken from others when none are free. False: the row is left out of this step (it
// yielded itself, ended, or waits for its token in flight, which may be its last).
bool Steps::make_room(Sequence& sequence, uint32_t positions, TimeNs now) {
  while (!parts_.kv.grow(sequence.residency.tables, positions)) {
    if (parts_.running.size() > 1) {
      Sequence& victim = pick_victim(parts_.running.rows());
      parts_.yields.preempt(victim, sequence.request.id);
      parts_.admission.close();
      if (&victim == &sequence) return false;
      continue;
    }
    if (!sequence.progress.in_flight.is_empty()) return false;
    parts_.exits.end_exhausted(sequence, positions, now);
    return false;
  }
  return true;
}

LaneOrder Steps::order_for_prefill(TimeNs now) {
  LaneFlags wants = {};
  for (const Sequence* sequence : behind_) {
    const Lane lane = sequence->lane();
    wants[static_cast<size_t>(lane)] |= Fairness::is_entitled(lane, now - sequence->request.arrival_ns);
  }
  for (const Lane lane : kLanes)
    wants[static_cast<size_t>(lane)] |= !parts_.waiting.queue(lane).empty() && has_share(lane, now);
  return parts_.fairness.order_for_prefill(wants);
}

LaneOrder Steps::order_for_room(TimeNs now) const {
  LaneFlags is_entitled = {};
  for (const Lane lane : kLanes) is_entitled[static_cast<size_t>(lane)] = has_share(lane, now);
  return parts_.fairness.order_for_room(is_entitled, parts_.running.lane_rows());
}

// Whether what waits in the lane has a share of the room.
bool Steps::has_share(Lane lane, TimeNs now) const {
  if (lane != Lane::kBackground) return true;
  const Waiting::Queue& queue = parts_.waiting.queue(lane);
  return !queue.empty() && Fairness::is_entitled(lane, now - queue.begin()->second->request.arrival_ns);
}

}  // namespace llmrt
