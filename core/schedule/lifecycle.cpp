// How requests come and go: the queue and the one way out.
#include <algorithm>

#include "core/schedule/scheduler_impl.h"

namespace llmrt {

void Scheduler::Impl::add(Request request, TimeNs now) {
  const size_t num_prompt = request.prompt.size();
  const uint64_t waiting = queue_tokens.load(std::memory_order_relaxed);
  std::optional<Error> refusal;
  if (!queue.empty() && waiting + num_prompt > config.queue_tokens_max) {
    refusal = make_error(ErrorCode::kOverloaded, "queue full: expected at most {} tokens, found {} and {} more",
                         config.queue_tokens_max, waiting, num_prompt);
    ++stats.num_rejected;
  }
  std::shared_ptr<BeamSearch> search;
  if (request.beam)
    search = std::make_shared<BeamSearch>(request.n, *request.beam, request.max_tokens, ends_of(request));
  for (uint32_t branch = 0, n = request.n; branch < n; ++branch) {
    Request own = branch + 1 < n ? Request(request) : std::move(request);
    own.id += branch;
    own.sampling.branch += branch;
    auto sequence = std::make_unique<Sequence>(std::move(own), branch);
    sequence->search = search;
    sequence->rank = branch;
    add_branch(std::move(sequence), refusal, now);
  }
}

void Scheduler::Impl::add_branch(std::unique_ptr<Sequence> owned, const std::optional<Error>& refusal, TimeNs now) {
  Sequence& sequence = *owned;
  sequence.times.added_ns = now;
  stats.in_system.arrive(now);
  const RequestId id = sequence.request.id;
  LLMRT_CHECK(!sequence.tokens.empty(), "a request has a prompt");
  LLMRT_CHECK(sequences.emplace(id, std::move(owned)).second, "a request id is used once");
  if (sequence.request.deadline_ns != 0) deadlines.emplace(sequence.request.deadline_ns, id);
  if (kv.has_cache()) sequence.identity = identity_of(sequence);

  if (refusal) {
    end(sequence, RequestState::kRejected, {.error = refusal}, FinishReason::kError, now);
    return;
  }
  if (sequence.request.max_tokens == 0 && sequence.scored == sequence.num_prompt) {  // nothing to draw or to score
    TokenEvent event;
    if (sequence.wants_scores()) {
      event.token = sequence.tokens[0];
      event.is_prompt = true;
    }
    end(sequence, RequestState::kStreaming, std::move(event), FinishReason::kLength, now);
    return;
  }
  enqueue(sequence, queue.end());
}

void Scheduler::Impl::expire(TimeNs now) {
  while (!deadlines.empty() && deadlines.begin()->first <= now) {
    Sequence& sequence = *find(deadlines.begin()->second);
    end(sequence, RequestState::kCancelled, {}, FinishReason::kTimeout, now);
  }
}

void Scheduler::Impl::end(Sequence& sequence, RequestState state, TokenEvent event, FinishReason finish, TimeNs now) {
  const Request& request = sequence.request;
  if (sequence.slot >= 0) {
    const bool is_spoilt = event.error && event.error->code == ErrorCode::kNotFinite;
    const bool forget = is_spoilt || config.prefix_cache == PrefixCacheKind::kOff;
    if (!quarantined) give_back(sequence, forget);
    running.erase(std::find(running.begin(), running.end(), &sequence));
  } else if (sequence.queued_tokens > 0) {
    dequeue(sequence);
  }
  if (request.deadline_ns != 0) deadlines.erase({request.deadline_ns, request.id});
  sequence.move_to(state);

  event.cached_tokens = sequence.cached_tokens;
  event.finish = finish;
  tell(sequence, std::move(event), now);
  ++stats.finished[static_cast<size_t>(finish)];
  stats.e2e_s.add(static_cast<double>(now - request.arrival_ns) * 1e-9);
  note_end(sequence, finish, now);

  if (is_terminal(state)) {
    trace(sequence);
    sequences.erase(request.id);
  } else {
    ++num_streaming;
    sequence.tokens = {};
  }
}

void Scheduler::Impl::tell(const Sequence& sequence, TokenEvent event, TimeNs now) {
  event.request_id = sequence.request.id;
  event.branch = sequence.branch;
  event.time_ns = now;
  events.push_back(std::move(event));
}

void Scheduler::Impl::give_back(Sequence& sequence, bool forget) {
  if (!forget) {
    keep_filled(sequence);
    kv.set_worth_storing(sequence.tables, is_worth_storing(sequence));
  }
  kv.release(sequence.tables, forget);
  if (sequence.penalty_slot >= 0) free_penalty_slots.push_back(sequence.penalty_slot);
  if (sequence.row_is_set) slots_to_clear.push_back(static_cast<uint32_t>(sequence.slot));
  by_slot[static_cast<size_t>(sequence.slot)] = nullptr;
  free_slots.push_back(sequence.slot);
  sequence.slot = sequence.penalty_slot = -1;
  sequence.row_is_set = false;
}

void Scheduler::Impl::enqueue(Sequence& sequence, std::list<Sequence*>::iterator place) {
  // The prompt that branches share is counted once; each of the others has its last token to compute.
  const bool shares_prompt = sequence.branch > 0 && sequence.state() == RequestState::kQueued;
  sequence.queued_tokens = shares_prompt ? 1 : static_cast<uint32_t>(sequence.tokens.size());
  sequence.queue_place = queue.insert(place, &sequence);
  queue_tokens.fetch_add(sequence.queued_tokens, std::memory_order_relaxed);
}

void Scheduler::Impl::dequeue(Sequence& sequence) {
  queue_tokens.fetch_sub(sequence.queued_tokens, std::memory_order_relaxed);
  queue.erase(sequence.queue_place);
  sequence.queued_tokens = 0;
}

void Scheduler::Impl::forget(Sequence& sequence, const SentTimes& sent) {
  sequence.times.sent = sent;
  trace(sequence);
  sequences.erase(sequence.request.id);
  --num_streaming;
}

Sequence* Scheduler::Impl::find(RequestId id) const {
  const auto it = sequences.find(id);
  return it == sequences.end() ? nullptr : it->second.get();
}

}  // namespace llmrt
