#include "core/schedule/commits.h"

#include "core/schedule/beam_round.h"

namespace llmrt {
namespace {

// Neither waiting nor running any more: a result that comes now is dropped.
bool has_ended(const Sequence& sequence) {
  return sequence.state() == RequestState::kStreaming || is_terminal(sequence.state());
}

TokenEvent prompt_event(TokenOutcome outcome, int32_t token) {
  TokenEvent event{std::move(outcome), /*is_prompt=*/true};
  event.token = token;
  return event;
}

}  // namespace

void Commits::take(const IterationPlan& plan, std::span<Verdict> verdicts, TimeNs now) {
  for (const PlanRow& row : plan.rows) take_row(plan, row, verdicts, now);
}

void Commits::take_row(const IterationPlan& plan, const PlanRow& row, std::span<Verdict> verdicts, TimeNs now) {
  if (row.num_samples == 0) return;
  Sequence* sequence = parts_.running.at_slot(row.slot);  // unless it has moved or gone
  if (sequence == nullptr || sequence->request.id != row.request_id) sequence = parts_.branches.find(row.request_id);
  for (uint32_t i = row.sample_first; i < row.sample_first + row.num_samples; ++i) {
    Verdict& verdict = verdicts[i];
    if (is_spoilt(verdict.error)) parts_.prefixes.forget_spoilt(sequence, row.root);
    if (sequence == nullptr || has_ended(*sequence)) return;
    const PlanSample& sample = plan.samples[i];
    const bool is_forced = sample.kind == TailKind::kScore, ends = ends_run(sample, verdict);
    if (!is_forced && !sequence->beam.search && sample.run_idx == 0)
      sequence->progress.in_flight.drop_draw(row.num_drafts);
    if (sample.verifies()) {
      if (sample.run_idx == 0) note_run(*sequence, row, std::span(plan.samples).subspan(i), verdicts.subspan(i));
      // What is computed of the answer: the drafts before this sample, which were right.
      sequence->progress.set_computed(row.start + row.num_tokens - row.num_drafts + sample.run_idx);
      if (sequence->residency.penalty_slot >= 0) ++sequence->residency.uncounted;
    }
    if (verdict.error) {
      parts_.exits.end_all(*sequence, RequestState::kStreaming, {{.error = std::move(verdict.error)}},
                           FinishReason::kError, now);
    } else if (sequence->beam.search) {
      take_candidates(*sequence, verdict, now);
    } else if (is_forced) {
      take_forced(*sequence, sample, verdict, now);
    } else {
      take_drawn(*sequence, verdict, now);
    }
    if (ends) break;
  }
  if (row.num_drafts > 0 && !has_ended(*sequence)) parts_.prefixes.settle(*sequence);
}

// While drafts are in flight there is no plan behind theirs, so the row has not yielded.
void Commits::note_run(Sequence& sequence, const PlanRow& row, std::span<const PlanSample> samples,
                       std::span<const Verdict> verdicts) {
  LLMRT_CHECK(sequence.residency.slot == static_cast<int32_t>(row.slot), "a row with drafts in flight keeps its slot");
  uint32_t num_right = 0;
  while (num_right < row.num_drafts && !ends_run(samples[num_right], verdicts[num_right])) ++num_right;
  const bool is_told = num_right < row.num_drafts && verdicts[num_right].token != samples[num_right].draft;
  parts_.drafts.note_run(sequence, row, num_right, is_told);
}

void Commits::take_forced(Sequence& sequence, const PlanSample& sample, Verdict& verdict, TimeNs now) {
  Journal& journal = parts_.journal;
  if (sample.output_position == 1) journal.tell(sequence, prompt_event({}, sequence.tokens[0]), now);
  TokenEvent event = prompt_event(std::move(verdict), sample.forced_token);
  const bool is_last = sample.output_position == sequence.num_prompt - 1;
  if (is_last && sequence.request.max_tokens == 0) {
    parts_.exits.end(sequence, RequestState::kStreaming, std::move(event), FinishReason::kLength, now);
  } else {
    journal.tell(sequence, std::move(event), now);
  }
}

void Commits::take_drawn(Sequence& sequence, Verdict& verdict, TimeNs now) {
  LLMRT_CHECK(verdict.token >= 0, "a drawn sample has a token or an error");
  Journal& journal = parts_.journal;
  // The first token is told with the second one's score, and a prompt of one token has none.
  if (sequence.wants_scores() && sequence.num_prompt == 1 && sequence.tokens.size() == 1)
    journal.tell(sequence, prompt_event({}, sequence.tokens[0]), now);
  sequence.tokens.push_back(verdict.token);
  journal.note_token(sequence, now);

  const FinishReason finish = verdict.finish;
  TokenEvent event{std::move(verdict)};
  if (finish != FinishReason::kNone) {
    parts_.exits.end(sequence, RequestState::kStreaming, std::move(event), finish, now);
    return;
  }
  LLMRT_CHECK(sequence.tokens.size() < sequence.num_prompt + size_t{sequence.request.max_tokens},
              "the last token comes with a finish");
  journal.tell(sequence, std::move(event), now);
}

// When the last beam of a request has heard, those that begin again do so as a preempted branch does: with their
// parent's full blocks and a copy of the filled slots of the last one.
void Commits::take_candidates(Sequence& beam, Verdict& verdict, TimeNs now) {
  beam.beam.candidates = std::move(verdict.top_logprobs);
  beam.record.times.add_token(now);
  const std::vector<Sequence*> beams = parts_.branches.of_same(beam);
  if (!advance_search(beams)) return;
  if (beam.beam.search->is_done()) {
    tell_answers(beams, now);
    return;
  }
  const uint32_t positions = static_cast<uint32_t>(beam.tokens.size()) + 1;
  if (!parts_.kv.can_hold(positions)) {
    parts_.exits.end_exhausted(beam, positions, now);
    return;
  }
  const BeamRound round = divide_beams(beams);
  for (const BeamRound::Restart& restart : round.restarts)
    parts_.yields.begin_again(*restart.beam, restart.parent->tokens);
  extend_beams(round);
}

void Commits::tell_answers(std::span<Sequence* const> beams, TimeNs now) {
  const std::shared_ptr<BeamSearch> search = beams[0]->beam.search;  // the beams that hold it end here
  for (size_t i = 0; i < beams.size(); ++i) {
    const BeamSearch::Answer& answer = search->answers()[i];
    parts_.journal.note_answer(*beams[i], static_cast<uint32_t>(answer.tokens.size()), now);
    for (size_t k = 0; k + 1 < answer.tokens.size(); ++k)
      parts_.journal.tell(*beams[i], {{.token = answer.tokens[k]}}, now);
    parts_.exits.end(*beams[i], RequestState::kStreaming, {{.token = answer.tokens.back()}}, answer.finish, now);
  }
}

}  // namespace llmrt
