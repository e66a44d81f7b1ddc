// Requests with beam search. A beam runs like any branch, but draws nothing: the device tells what may follow, and when
// all beams of the request have heard, BeamSearch decides. A beam that goes on in one way keeps its place. Where it
// goes on in several, the places of beams that were dropped take over its tokens and begin again behind them as a
// preempted branch does: with its full blocks and a copy of the filled slots of the last one.
#include <algorithm>

#include "core/schedule/scheduler_impl.h"

namespace llmrt {

std::vector<int32_t> Scheduler::Impl::ends_of(const Request& request) const {
  return request.stop.ignore_eos ? std::vector<int32_t>() : config.end_of_generation;
}

void Scheduler::Impl::end_all(Sequence& sequence, RequestState state, const TokenEvent& event, FinishReason finish,
                              TimeNs now) {
  if (!sequence.beam.search) {
    end(sequence, state, event, finish, now);
    return;
  }
  for (Sequence* beam : branches.of_same(sequence)) end(*beam, state, event, finish, now);
}

void Scheduler::Impl::commit_beam(Sequence& sequence, Verdict& verdict, TimeNs now) {
  sequence.beam.candidates = std::move(verdict.top_logprobs);
  sequence.record.times.add_token(now);
  const std::vector<Sequence*> beams = branches.of_same(sequence);
  std::vector<std::vector<TopLogprob>> candidates(beams.size());
  for (const Sequence* beam : beams) {
    if (beam->beam.candidates.empty()) return;
    candidates[beam->beam.rank] = beam->beam.candidates;
  }
  BeamSearch& search = *sequence.beam.search;
  search.advance(candidates);
  if (search.is_done()) {
    tell_answers(beams, search, now);
    return;
  }
  const uint32_t positions = static_cast<uint32_t>(sequence.tokens.size()) + 1;
  if (kv.can_hold(positions)) {
    go_on(beams, search.steps());
  } else {
    end_exhausted(sequence, positions, now);
  }
}

void Scheduler::Impl::go_on(std::span<Sequence* const> beams, std::span<const BeamSearch::Step> steps) {
  std::vector<Sequence*> before(beams.size()), after(beams.size()), dropped;
  for (Sequence* beam : beams) {
    before[beam->beam.rank] = beam;
    beam->beam.is_asked = false;
    beam->beam.candidates.clear();
    const auto first = std::ranges::find(steps, beam->beam.rank, &BeamSearch::Step::parent);
    (first == steps.end() ? dropped.emplace_back() : after[static_cast<size_t>(first - steps.begin())]) = beam;
  }
  for (size_t rank = 0; rank < steps.size(); ++rank) {
    if (after[rank] != nullptr) continue;
    after[rank] = dropped.back();
    dropped.pop_back();
    begin_again(*after[rank], before[steps[rank].parent]->tokens);
  }
  for (size_t rank = 0; rank < steps.size(); ++rank) {
    after[rank]->beam.rank = static_cast<uint32_t>(rank);
    after[rank]->tokens.push_back(steps[rank].token);
  }
}

void Scheduler::Impl::begin_again(Sequence& sequence, const std::vector<int32_t>& tokens) {
  if (sequence.runs()) {
    give_back(sequence, /*forget=*/false);
    sequence.move_to(RequestState::kPreempted);
  } else {
    waiting.remove(sequence);
  }
  sequence.tokens = tokens;
  waiting.add(sequence);
}

void Scheduler::Impl::tell_answers(std::span<Sequence* const> beams, const BeamSearch& search, TimeNs now) {
  for (size_t i = 0; i < beams.size(); ++i) {
    const BeamSearch::Answer& answer = search.answers()[i];
    journal.note_answer(*beams[i], static_cast<uint32_t>(answer.tokens.size()), now);
    for (size_t k = 0; k + 1 < answer.tokens.size(); ++k) journal.tell(*beams[i], {.token = answer.tokens[k]}, now);
    end(*beams[i], RequestState::kStreaming, {.token = answer.tokens.back()}, answer.finish, now);
  }
}

// When nothing else can run or is in flight, beams that wait for the others of their request hold what those need.
void Scheduler::Impl::yield_idle_beams(TimeNs now) {
  const auto is_asked = [](const Sequence* sequence) { return sequence->beam.is_asked; };
  const auto next_or = [&](Sequence& otherwise) -> Sequence& {
    for (const auto& queue : waiting.queues())
      for (const auto& [place, sequence] : queue)
        if (!sequence->beam.is_asked) return *sequence;
    return otherwise;
  };
  while (draft.is_empty() && !plans.has_in_flight() && std::ranges::any_of(running.rows(), is_asked)) {
    Sequence& newest = *running.rows().back();
    preempt(newest, next_or(newest).request.id);
    admits = true;
    is_closed = {};
    begin_admission();
    for (const Lane lane : order_for_room(now)) admit(lane, now);
  }
}

}  // namespace llmrt
