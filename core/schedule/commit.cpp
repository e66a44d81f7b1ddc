// What the device sampled becomes tokens, events and ends.
#include "core/schedule/scheduler_impl.h"

namespace llmrt {
namespace {

// Neither waiting nor running any more: a result that comes now is dropped.
bool has_ended(const Sequence& sequence) {
  return sequence.state() == RequestState::kStreaming || is_terminal(sequence.state());
}

TokenEvent event_of(Verdict& verdict) {
  TokenEvent event;
  event.hold_bytes = verdict.hold_bytes;
  event.cut_bytes = verdict.cut_bytes;
  event.has_logprob = verdict.has_logprob;
  event.logprob = verdict.logprob;
  event.top_logprobs = std::move(verdict.top_logprobs);
  event.draw = verdict.draw;
  return event;
}

}  // namespace

bool Scheduler::Impl::is_spoilt(const std::optional<Error>& error) {
  return error && (error->code == ErrorCode::kNotFinite || error->code == ErrorCode::kInternal);
}

void Scheduler::Impl::commit_row(const IterationPlan& plan, const PlanRow& row, std::span<Verdict> verdicts,
                                 TimeNs now) {
  if (row.num_samples == 0) return;
  Sequence* sequence = running.at_slot(row.slot);  // unless it has moved or gone
  if (sequence == nullptr || sequence->request.id != row.request_id) sequence = branches.find(row.request_id);
  for (uint32_t i = row.sample_first; i < row.sample_first + row.num_samples; ++i) {
    Verdict& verdict = verdicts[i];
    if (is_spoilt(verdict.error)) prefixes.forget_spoilt(sequence, row.root);
    if (sequence == nullptr || has_ended(*sequence)) return;
    const PlanSample& sample = plan.samples[i];
    const bool is_forced = sample.forced_token >= 0;
    if (!is_forced && !sequence->beam.search) --sequence->progress.pending;
    if (verdict.error) {
      end_all(*sequence, RequestState::kStreaming, {.error = std::move(verdict.error)}, FinishReason::kError, now);
    } else if (sequence->beam.search) {
      commit_beam(*sequence, verdict, now);
    } else if (is_forced) {
      commit_forced(*sequence, sample, verdict, now);
    } else {
      commit_drawn(*sequence, verdict, now);
    }
  }
}

void Scheduler::Impl::commit_forced(Sequence& sequence, const PlanSample& sample, Verdict& verdict, TimeNs now) {
  if (sample.output_position == 1) journal.tell(sequence, {.token = sequence.tokens[0], .is_prompt = true}, now);
  TokenEvent event = event_of(verdict);
  event.token = sample.forced_token;
  event.is_prompt = true;
  const bool is_last = sample.output_position == sequence.num_prompt - 1;
  if (is_last && sequence.request.max_tokens == 0) {
    end(sequence, RequestState::kStreaming, std::move(event), FinishReason::kLength, now);
  } else {
    journal.tell(sequence, std::move(event), now);
  }
}

void Scheduler::Impl::commit_drawn(Sequence& sequence, Verdict& verdict, TimeNs now) {
  LLMRT_CHECK(verdict.token >= 0, "a drawn sample has a token or an error");
  // The first token is told with the second one's score, and a prompt of one token has none.
  if (sequence.wants_scores() && sequence.num_prompt == 1 && sequence.tokens.size() == 1)
    journal.tell(sequence, {.token = sequence.tokens[0], .is_prompt = true}, now);
  sequence.tokens.push_back(verdict.token);
  journal.note_token(sequence, now);

  TokenEvent event = event_of(verdict);
  event.token = verdict.token;
  if (verdict.finish != FinishReason::kNone) {
    end(sequence, RequestState::kStreaming, std::move(event), verdict.finish, now);
    return;
  }
  LLMRT_CHECK(sequence.tokens.size() < sequence.num_prompt + size_t{sequence.request.max_tokens},
              "the last token comes with a finish");
  journal.tell(sequence, std::move(event), now);
}

}  // namespace llmrt
