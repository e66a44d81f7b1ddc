#include "core/schedule/waiting.h"

namespace llmrt {
namespace {

// A request without a deadline counts as due so long after it came: it goes before those with later deadlines.
constexpr TimeNs kPatienceNs = 30'000'000'000;

}  // namespace

void Waiting::add(Sequence& sequence) {
  const Request& request = sequence.request;
  WaitTicket& ticket = sequence.ticket;
  const bool is_new = sequence.state() == RequestState::kQueued;
  // The prompt that branches share is counted once; each of the others has its last token to compute. So has a beam
  // that begins again.
  const bool is_shared = sequence.branch > 0 && (is_new || sequence.beam.search);
  ticket.queued_tokens = is_shared ? 1 : sequence.num_known();
  ticket.queued_bytes = is_new ? ticket.start_bytes : kBranchBytes + sequence.tokens.capacity() * sizeof(int32_t);
  ++num_added_;
  if (is_new) {
    const TimeNs due_ns = request.deadline_ns != 0 ? request.deadline_ns : request.arrival_ns + kPatienceNs;
    ticket.place = {true, due_ns, num_added_};
  } else {
    ticket.place = {false, 0, ~num_added_};
  }
  const size_t lane = static_cast<size_t>(sequence.lane());
  queues_[lane].emplace(ticket.place, &sequence);
  if (!request.sampling.has_penalties()) plain_queues_[lane].emplace(ticket.place, &sequence);
  tokens_[lane].fetch_add(ticket.queued_tokens, std::memory_order_relaxed);
  bytes_.fetch_add(ticket.queued_bytes, std::memory_order_relaxed);
  branches_.fetch_add(1, std::memory_order_relaxed);
}

void Waiting::remove(Sequence& sequence) {
  WaitTicket& ticket = sequence.ticket;
  const size_t lane = static_cast<size_t>(sequence.lane());
  tokens_[lane].fetch_sub(ticket.queued_tokens, std::memory_order_relaxed);
  bytes_.fetch_sub(ticket.queued_bytes, std::memory_order_relaxed);
  branches_.fetch_sub(1, std::memory_order_relaxed);
  queues_[lane].erase(ticket.place);
  plain_queues_[lane].erase(ticket.place);
  ticket.queued_tokens = 0;
}

uint32_t Waiting::size() const {
  size_t sum = 0;
  for (const Queue& queue : queues_) sum += queue.size();
  return static_cast<uint32_t>(sum);
}

LaneFlags Waiting::lanes() const {
  LaneFlags flags = {};
  for (size_t i = 0; i < kNumLanes; ++i) flags[i] = !queues_[i].empty();
  return flags;
}

uint64_t Waiting::tokens() const {
  uint64_t sum = 0;
  for (const auto& tokens : tokens_) sum += tokens.load(std::memory_order_relaxed);
  return sum;
}

QueueLoad Waiting::load() const {
  return {.tokens = tokens(),
          .branches = branches_.load(std::memory_order_relaxed),
          .bytes = bytes_.load(std::memory_order_relaxed)};
}

Status Waiting::check() const {
  uint64_t bytes = 0;
  for (const Lane lane : kLanes) {
    const size_t i = static_cast<size_t>(lane);
    uint64_t tokens = 0;
    size_t num_plain = 0;
    for (const auto& [place, sequence] : queues_[i]) {
      const RequestId id = sequence->request.id;
      const bool may_wait = sequence->state() == RequestState::kQueued || sequence->state() == RequestState::kPreempted;
      if (!may_wait) return broken_books("request {} waits in state {}", id, request_state_name(sequence->state()));
      if (sequence->runs()) return broken_books("request {} waits with a slot", id);
      if (sequence->lane() != lane) return broken_books("request {} waits in another's lane", id);
      tokens += sequence->ticket.queued_tokens;
      bytes += sequence->ticket.queued_bytes;
      num_plain += plain_queues_[i].contains(place);
    }
    if (num_plain != plain_queues_[i].size())
      return broken_books("queue {}: {} wait without penalties, of these {} as all do", i, plain_queues_[i].size(),
                          num_plain);
    if (tokens != this->tokens(lane))
      return broken_books("queue {}: expected {} tokens, found {}", i, tokens, this->tokens(lane));
  }
  const QueueLoad found = load();
  if (size() != found.branches || bytes != found.bytes)
    return broken_books("queues: expected {} branches of {} bytes, found {} of {}", size(), bytes, found.branches,
                        found.bytes);
  return {};
}

}  // namespace llmrt
