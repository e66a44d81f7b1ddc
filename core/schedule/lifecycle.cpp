// How requests come and go: the queue and the one way out.
#include <algorithm>

#include "core/schedule/scheduler_impl.h"

namespace llmrt {
namespace {

// A request without a deadline counts as due then: it goes before those with later ones.
constexpr TimeNs kPatienceNs = 30'000'000'000;
constexpr TimeNs kLatelyNs = 60'000'000'000;  // whoever has asked may ask again

}  // namespace

void Scheduler::Impl::add(Request request, TimeNs now) {
  std::optional<Error> refusal = queue_full(request, {});
  if (!refusal) refusal = too_late(request, now);
  if (refusal) journal.note_rejected();
  if (lane_of(request.request_class) <= Lane::kAgent) asked_until_ns = now + kLatelyNs;
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
  Sequence& sequence = *owned;
  journal.note_arrival(sequence, now);
  const RequestId id = sequence.request.id;
  LLMRT_CHECK(sequence.num_prompt > 0, "a request has a prompt");
  LLMRT_CHECK(sequences.emplace(id, std::move(owned)).second, "a request id is used once");
  set_timeout(sequence);
  if (kv.has_cache()) sequence.origin.identity = identity_of(sequence);
  sequence.origin.has_salt = !sequence.request.cache_salt.empty();
  sequence.request.cache_salt = {};

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
  enqueue(sequence);
}

// Until it has started there is one time more to keep.
void Scheduler::Impl::set_timeout(Sequence& sequence) {
  const Request& request = sequence.request;
  const TimeNs before = sequence.times_out_ns;
  sequence.times_out_ns = 0;
  const auto no_later_than = [&](TimeNs at) {
    if (at != 0) sequence.times_out_ns = sequence.times_out_ns == 0 ? at : std::min(sequence.times_out_ns, at);
  };
  no_later_than(request.deadline_ns);
  no_later_than(request.expiry_ns);
  if (sequence.state() == RequestState::kQueued) no_later_than(request.start_by_ns);
  if (sequence.times_out_ns == before) return;
  if (before != 0) timeouts.erase({before, request.id});
  if (sequence.times_out_ns != 0) timeouts.emplace(sequence.times_out_ns, request.id);
}

void Scheduler::Impl::expire(TimeNs now) {
  while (!timeouts.empty() && timeouts.begin()->first <= now) {
    Sequence& sequence = *find(timeouts.begin()->second);
    end(sequence, RequestState::kCancelled, {.error = timed_out(sequence, now)}, FinishReason::kTimeout, now);
  }
}

Error Scheduler::Impl::timed_out(const Sequence& sequence, TimeNs now) const {
  const Request& request = sequence.request;
  const auto ms_to = [&request](TimeNs at) { return static_cast<double>(at - request.arrival_ns) * 1e-6; };
  const TimeNs at = sequence.times_out_ns;
  if (at != request.deadline_ns && at != request.expiry_ns)
    return make_error(ErrorCode::kTimeout,
                      "timeout: expected a start within {:.0f} ms, found it waiting after {:.0f} ms", ms_to(at),
                      ms_to(now));
  return make_error(ErrorCode::kTimeout,
                    "timeout: expected the whole answer within {:.0f} ms ({}), found {} of at most {} tokens after "
                    "{:.0f} ms",
                    ms_to(at), at == request.deadline_ns ? "its deadline" : "this engine's limit",
                    sequence.num_known() - sequence.num_prompt, request.max_tokens, ms_to(now));
}

void Scheduler::Impl::end(Sequence& sequence, RequestState state, TokenEvent event, FinishReason finish, TimeNs now) {
  const Request& request = sequence.request;
  if (finish == FinishReason::kEos || finish == FinishReason::kStopToken || finish == FinishReason::kStopString ||
      finish == FinishReason::kLength) {
    const uint32_t num_output = sequence.num_known() - sequence.num_prompt;
    if (num_output > 0) lengths_of(request).add(num_output);
  }
  leave_batch(sequence);
  if (sequence.runs()) {
    const uint32_t unused =
        sequence.residency.reserved_tokens - std::min(sequence.residency.reserved_tokens, sequence.progress.computed);
    journal.note_unused_reservation(unused);
    const bool forget = is_spoilt(event.error) || config.prefix_cache == PrefixCacheKind::kOff;
    if (!quarantined) give_back(sequence, forget);
    stop_running(sequence);
  } else if (sequence.waits()) {
    dequeue(sequence);
  }
  if (sequence.times_out_ns != 0) timeouts.erase({sequence.times_out_ns, request.id});
  sequence.move_to(state);

  event.cached_tokens = sequence.record.cached_tokens;
  event.finish = finish;
  journal.tell(sequence, std::move(event), now);
  journal.note_end(sequence, finish, now);

  if (is_terminal(state)) {
    journal.trace(sequence);
    sequences.erase(request.id);
  } else {
    ++num_streaming;
    sequence.release_memory();
  }
}

void Scheduler::Impl::give_back(Sequence& sequence, bool forget) {
  // A first block that the token in flight fills stands behind no plan's root yet, so nothing would forget it.
  forget |= sequence.origin.root == 0 && sequence.progress.pending > 0;
  if (!forget) {
    keep_filled(sequence);
    kv.set_worth_storing(sequence.residency.tables, is_worth_storing(sequence));
  }
  kv.release(sequence.residency.tables, forget);
  if (sequence.residency.penalty_slot >= 0) free_penalty_slots.push_back(sequence.residency.penalty_slot);
  if (sequence.residency.row_is_set) slots_to_clear.push_back(static_cast<uint32_t>(sequence.residency.slot));
  by_slot[static_cast<size_t>(sequence.residency.slot)] = nullptr;
  free_slots.push_back(sequence.residency.slot);
  sequence.residency.slot = sequence.residency.penalty_slot = -1;
  sequence.residency.row_is_set = false;
}

void Scheduler::Impl::stop_running(Sequence& sequence) {
  running.erase(std::ranges::find(running, &sequence));
  --num_rows[static_cast<size_t>(sequence.lane())];
}

void Scheduler::Impl::enqueue(Sequence& sequence) {
  const Request& request = sequence.request;
  const bool is_new = sequence.state() == RequestState::kQueued;
  // The prompt that branches share is counted once; each of the others has its last token to compute. So has a beam
  // that begins again.
  const bool is_shared = sequence.branch > 0 && (is_new || sequence.beam.search);
  sequence.ticket.queued_tokens = is_shared ? 1 : sequence.num_known();
  sequence.ticket.queued_bytes =
      is_new ? sequence.ticket.start_bytes : kBranchBytes + sequence.tokens.capacity() * sizeof(int32_t);
  ++num_enqueued;
  if (is_new) {
    const TimeNs due_ns = request.deadline_ns != 0 ? request.deadline_ns : request.arrival_ns + kPatienceNs;
    sequence.ticket.place = {true, due_ns, num_enqueued};
  } else {
    sequence.ticket.place = {false, 0, ~num_enqueued};
  }
  queue_of(sequence.lane()).emplace(sequence.ticket.place, &sequence);
  if (!request.sampling.has_penalties())
    plain_queues[static_cast<size_t>(sequence.lane())].emplace(sequence.ticket.place, &sequence);
  tokens_waiting(sequence.lane()).fetch_add(sequence.ticket.queued_tokens, std::memory_order_relaxed);
  queue_bytes.fetch_add(sequence.ticket.queued_bytes, std::memory_order_relaxed);
  queue_branches.fetch_add(1, std::memory_order_relaxed);
}

void Scheduler::Impl::dequeue(Sequence& sequence) {
  tokens_waiting(sequence.lane()).fetch_sub(sequence.ticket.queued_tokens, std::memory_order_relaxed);
  queue_bytes.fetch_sub(sequence.ticket.queued_bytes, std::memory_order_relaxed);
  queue_branches.fetch_sub(1, std::memory_order_relaxed);
  queue_of(sequence.lane()).erase(sequence.ticket.place);
  plain_queues[static_cast<size_t>(sequence.lane())].erase(sequence.ticket.place);
  sequence.ticket.queued_tokens = 0;
}

void Scheduler::Impl::forget(Sequence& sequence, const SentTimes& sent) {
  sequence.record.times.sent = sent;
  journal.trace(sequence);
  sequences.erase(sequence.request.id);
  --num_streaming;
}

Sequence* Scheduler::Impl::find(RequestId id) const {
  const auto it = sequences.find(id);
  return it == sequences.end() ? nullptr : it->second.get();
}

}  // namespace llmrt
