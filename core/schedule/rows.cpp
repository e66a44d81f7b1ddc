// What runs goes on: rows that are behind by one token first, then the others' chunks.
#include <algorithm>

#include "core/schedule/scheduler_impl.h"
#include "core/schedule/victims.h"

namespace llmrt {
namespace {

// A row that needs one token now: it is behind by one, or it scores its prompt and must not starve of sampled rows.
bool is_unit(const Sequence& sequence) {
  return sequence.gap() == 1 || (sequence.gap() > 1 && sequence.progress.scored < sequence.num_prompt);
}

// It decodes, and nobody waits for what it says.
bool is_patient(const Sequence& sequence) {
  return sequence.lane() > Lane::kAgent && sequence.gap() == 1;
}

}  // namespace

// Whether the next step is likely to end a long prompt: of a request that has just come, or that runs while nothing
// else of its lane waits. One that has found no room does not know when there will be some, and where several wait it
// is the queue that they wait for.
bool Scheduler::Impl::awaits_long_prompt() const {
  const bool has_patient_rows = running.has_patient_rows();
  for (const Lane lane : {Lane::kInteractive, Lane::kAgent}) {
    const Waiting::Queue& queue = waiting.queue(lane);
    const Sequence* first = queue.empty() ? nullptr : queue.begin()->second;
    if (queue.size() > 1 || (first != nullptr && first->ticket.tried_in != 0)) continue;
    if (first != nullptr && pace.is_long_end(first->num_known(), has_patient_rows)) return true;
    for (const Sequence* sequence : running.rows())
      if (sequence->lane() == lane && pace.is_long_end(sequence->gap(), has_patient_rows)) return true;
  }
  return false;
}

// Rows of requests that nobody waits for may be left out for a long prompt that somebody waits for: what they would add
// to its step costs them one step.
//
// With more rows than the step has tokens, samples or room for logit changes, those left out come first the next time.
void Scheduler::Impl::take_units(TimeNs now) {
  taking.assign(running.rows().begin(), running.rows().end());
  const auto first =
      std::ranges::find_if(taking, [this](const Sequence* sequence) { return sequence->residency.admission >= turn; });
  std::rotate(taking.begin(), first, taking.end());
  turn = 0;
  for (Sequence* const each : taking) {
    Sequence& sequence = *each;
    if (!sequence.runs() || !is_unit(sequence)) continue;  // it had to yield, or ended
    if (leaves_out && is_patient(sequence)) continue;
    if (sequence.waits_for_token()) continue;
    if (draft.tokens_left() == 0 || draft.count_that_fits(sequence, 1) == 0) {
      if (turn == 0) turn = sequence.residency.admission;
    } else if (make_room(sequence, sequence.progress.computed + 1, now)) {
      draft.take(sequence, 1);
    }
  }
}

// No long prompt has come. Where others have been admitted meanwhile nobody yields for a block: who needs one and finds
// none has the next step.
void Scheduler::Impl::take_left_out(TimeNs now) {
  leaves_out = false;
  if (draft.is_empty()) return take_units(now);
  for (Sequence* const sequence : running.rows()) {
    if (sequence->take.tokens > 0 || !is_patient(*sequence) || sequence->waits_for_token()) continue;
    if (draft.tokens_left() == 0 || draft.count_that_fits(*sequence, 1) == 0) continue;
    if (kv.grow(sequence->residency.tables, sequence->progress.computed + 1)) draft.take(*sequence, 1);
  }
}

// By lane: what runs, then who may start. While room is scarce the lane that has the least of it is asked before the
// others, in its turn.
void Scheduler::Impl::take_prompts(TimeNs now) {
  draft.set_chunk_tokens(pace.chunk_tokens(draft.so_far(running.rows()), draft.tokens_left()));
  behind.clear();
  for (Sequence* sequence : running.rows()) {
    if (leaves_out && is_patient(*sequence)) continue;
    if (sequence->gap() > sequence->take.tokens && !sequence->waits_for_token()) behind.push_back(sequence);
  }
  const LaneOrder turns = order_for_prefill(now), by_room = order_for_room(now);
  const bool was_scarce = room_is_scarce;
  const auto first = std::ranges::find_if(by_room, [this](Lane lane) { return !waiting.queue(lane).empty(); });
  if (admits) begin_admission();
  for (const Lane lane : turns) {
    for (Sequence* sequence : behind)
      if (sequence->lane() == lane && sequence->runs()) take_chunk(*sequence);
    if (!was_scarce || (first != by_room.end() && lane == *first)) admit(lane, now);
  }
  if (!was_scarce) return;
  for (const Lane lane : by_room) admit(lane, now);
}

// As much as budget and free blocks allow, or a prompt's end. Admission has promised the blocks; rows that decode
// beyond their reservation may have taken them for a while, then the row waits for those to end or to yield.
void Scheduler::Impl::take_chunk(Sequence& sequence) {
  const uint32_t taken = sequence.take.tokens;
  const uint32_t end = sequence.progress.computed + taken;
  const uint32_t capacity = kv.capacity_tokens(sequence.residency.tables);
  const uint32_t room = capacity > end ? capacity - end : 0;
  const uint32_t rest = sequence.gap() - taken;
  const uint32_t count = std::min(
      pace.ends_prompt(sequence.lane(), rest, draft.chunk_tokens(), draft.tokens_left(), running.has_patient_rows())
          ? rest
          : std::min(rest, draft.chunk_tokens()),
      room);
  if (count == 0) return;
  const uint32_t within = draft.count_that_fits(sequence, count);
  LLMRT_CHECK(kv.grow(sequence.residency.tables, end + within), "capacity_tokens said so");
  fairness.charge(sequence.lane(), within);
  pace.note_served(within);
  draft.take_of_chunk(sequence, within);
}

// Blocks for that many positions, taken from others when none are free. False: the row is left out of this step (it
// yielded itself, ended, or waits for its token in flight, which may be its last).
bool Scheduler::Impl::make_room(Sequence& sequence, uint32_t positions, TimeNs now) {
  while (!kv.grow(sequence.residency.tables, positions)) {
    if (running.size() > 1) {
      Sequence& victim = pick_victim(running.rows());
      preempt(victim, sequence.request.id);
      if (&victim == &sequence) return false;
      continue;
    }
    if (sequence.progress.pending > 0) return false;
    end_exhausted(sequence, positions, now);
    return false;
  }
  return true;
}

void Scheduler::Impl::end_exhausted(Sequence& sequence, uint32_t positions, TimeNs now) {
  uint32_t g = 0;
  while (kv.blocks_for(g, positions) <= kv.num_blocks(g)) ++g;
  Error error = make_error(
      ErrorCode::kPoolExhausted, "pool exhausted: request {} alone: {} tokens need {} KV blocks of {}, the pool has {}",
      sequence.request.id, positions, kv.blocks_for(g, positions), config.kv_pools[g].block_tokens, kv.num_blocks(g));
  end_all(sequence, RequestState::kStreaming, {.error = std::move(error)}, FinishReason::kError, now);
}

}  // namespace llmrt
