// How requests come and go: the queue and the one way out.
#include <algorithm>

#include "core/schedule/scheduler_impl.h"

namespace llmrt {
void Scheduler::Impl::add(Request request, TimeNs now) {
  std::optional<Error> refusal = limits.queue_full(request, {});
  if (!refusal) refusal = limits.too_late(request, now);
  if (refusal) journal.note_rejected();
  pace.note_asked(lane_of(request.request_class), now);
  std::shared_ptr<BeamSearch> search;
  if (request.beam)
    search = std::make_shared<BeamSearch>(request.n, *request.beam, request.max_tokens, ends_of(request));
  const uint64_t first_bytes = held_bytes(request) - (request.n - 1) * kBranchBytes;
  std::shared_ptr<const std::vector<int32_t>> prompt;
  if (request.n > 1) {
    prompt = std::make_shared<std::vector<int32_t>>(std::move(request.prompt));
    request.prompt.clear();
  }
  for (uint32_t branch = 0, n = request.n; branch < n; ++branch) {
    Request own = branch + 1 < n ? Request(request) : std::move(request);
    own.id += branch;
    own.sampling.branch += branch;
    auto sequence = std::make_unique<Sequence>(std::move(own), branch, prompt);
    sequence->beam.search = search;
    sequence->beam.rank = branch;
    sequence->ticket.start_bytes = branch == 0 ? first_bytes : kBranchBytes;
    add_branch(std::move(sequence), refusal, now);
  }
}

void Scheduler::Impl::add_branch(std::unique_ptr<Sequence> owned, const std::optional<Error>& refusal, TimeNs now) {
  LLMRT_CHECK(owned->num_prompt > 0, "a request has a prompt");
  Sequence& sequence = branches.add(std::move(owned));
  journal.note_arrival(sequence, now);
  timeouts.set(sequence);
  prefixes.set_origin(sequence);

  if (refusal) {
    end(sequence, RequestState::kRejected, {.error = refusal}, FinishReason::kError, now);
    return;
  }
  if (sequence.request.max_tokens == 0 &&
      sequence.progress.scored == sequence.num_prompt) {  // nothing to draw or to score
    TokenEvent event;
    if (sequence.wants_scores()) {
      sequence.take_prompt();
      event.token = sequence.tokens[0];
      event.is_prompt = true;
    }
    end(sequence, RequestState::kStreaming, std::move(event), FinishReason::kLength, now);
    return;
  }
  waiting.add(sequence);
}

void Scheduler::Impl::expire(TimeNs now) {
  while (const std::optional<RequestId> id = timeouts.due(now)) {
    Sequence& sequence = *branches.find(*id);
    end(sequence, RequestState::kCancelled, {.error = timed_out(sequence, now)}, FinishReason::kTimeout, now);
  }
}

void Scheduler::Impl::end(Sequence& sequence, RequestState state, TokenEvent event, FinishReason finish, TimeNs now) {
  const Request& request = sequence.request;
  if (finish == FinishReason::kEos || finish == FinishReason::kStopToken || finish == FinishReason::kStopString ||
      finish == FinishReason::kLength) {
    reservations.learn(request, sequence.num_known() - sequence.num_prompt);
  }
  const Batches::Left left = batches.leave(sequence);
  journal.note_useful(left.computed, left.padding);
  if (sequence.runs()) {
    const uint32_t unused =
        sequence.residency.reserved_tokens - std::min(sequence.residency.reserved_tokens, sequence.progress.computed);
    journal.note_unused_reservation(unused);
    const bool forget = is_spoilt(event.error) || config.prefix_cache == PrefixCacheKind::kOff;
    quarantined ? running.abandon(sequence) : give_back(sequence, forget);
  } else if (sequence.waits()) {
    waiting.remove(sequence);
  }
  timeouts.erase(sequence);
  sequence.move_to(state);

  event.cached_tokens = sequence.record.cached_tokens;
  event.finish = finish;
  journal.tell(sequence, std::move(event), now);
  journal.note_end(sequence, finish, now);

  if (is_terminal(state)) {
    journal.trace(sequence);
    branches.erase(sequence);
  } else {
    branches.keep_streaming();
    sequence.release_memory();
  }
}

void Scheduler::Impl::give_back(Sequence& sequence, bool forget) {
  prefixes.give_back(sequence, forget, is_worth_storing(sequence));
  running.release(sequence);
}

void Scheduler::Impl::forget(Sequence& sequence, const SentTimes& sent) {
  sequence.record.times.sent = sent;
  journal.trace(sequence);
  branches.drop_streaming(sequence);
}

}  // namespace llmrt
