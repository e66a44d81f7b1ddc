#include "core/schedule/start_order.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace llmrt {
namespace {

constexpr uint32_t kLookAhead = 64;
constexpr uint32_t kScanMax = 1024;  // with branches that wait for others
constexpr uint32_t kOvertakenMax = 8;
constexpr uint64_t kHeldPlansMax = 16;
constexpr uint64_t kHeldForStateMax = 256;  // plans; for another of the lane or of one before it

// Lengths of one power of two count as equal, and so do all below 64 tokens: then the first come goes first.
int length_class(const Sequence& sequence) {
  return std::bit_width(sequence.tokens.size() / 64);
}

bool goes_before(const Sequence& a, const Sequence& b) {
  if (a.found.prefix_blocks != b.found.prefix_blocks) return a.found.prefix_blocks > b.found.prefix_blocks;
  return length_class(a) < length_class(b);
}

}  // namespace

StartOrder::StartOrder(const SchedulerConfig& config, const KvSpace& kv, const Prefixes& prefixes,
                       const Branches& branches, const Waiting& waiting, const Running& running, const Batches& batches,
                       Journal& journal)
    : config_(config),
      kv_(kv),
      prefixes_(prefixes),
      branches_(branches),
      waiting_(waiting),
      running_(running),
      batches_(batches),
      journal_(journal),
      save_points_(kv.place_tokens(), config.state_interval) {}

Sequence* StartOrder::next(Lane lane, uint64_t round, uint64_t plan) {
  if (!batches_.may_start_any(running_)) return nullptr;
  const Waiting::Queue& queue = queue_to_start(lane);
  Sequence* best = nullptr;
  uint32_t num_seen = 0, num_scanned = 0;
  for (const auto& [place, sequence] : queue) {
    if (!batches_.may_start(*sequence)) continue;
    if (++num_scanned > kScanMax) break;
    if (sequence->beam.is_asked) continue;
    if (sequence->is_paused) {
      sequence->ticket.is_held = true;
      continue;
    }
    const bool waits = waits_for_branch(*sequence);
    if (!waits && has_its_penalty_rows(*sequence)) {
      sequence->ticket.is_held = true;
      continue;
    }
    if (sequence->state() == RequestState::kPreempted) return waits ? nullptr : sequence;
    if (waits) continue;
    if (++num_seen > kLookAhead) break;
    sequence->take_prompt();
    if (sequence->ticket.tried_in == round) continue;
    if (kv_.has_cache() && waits_for_prefix(*sequence, plan)) continue;
    sequence->ticket.is_held = false;  // from now on it counts as overtaken
    if (is_aged(*sequence) || (best == nullptr && sequence->request.deadline_ns != 0)) return sequence;
    if (kv_.has_cache() && !sequence->found.is_known && queue.size() > 1) prefixes_.look_up(*sequence, running_.rows());
    if (best == nullptr || goes_before(*sequence, *best)) best = sequence;
  }
  return best;
}

// Without the sequences that wait for a penalty slot, however many. The others take none of these slots: holding them
// up would bring no sequence nearer to one, and they do not overtake those that wait for one.
const Waiting::Queue& StartOrder::queue_to_start(Lane lane) const {
  const bool has_slots = running_.has_penalty_slot() || config_.on_exhaustion == OnExhaustion::kReject;
  return has_slots ? waiting_.queue(lane) : waiting_.plain_queue(lane);
}

// Where rows with token counts are scarce one request does not take all of them: then it waits for its own branches_.
bool StartOrder::has_its_penalty_rows(const Sequence& sequence) const {
  const bool may_matter = sequence.request.n > 1 && sequence.request.sampling.has_penalties() &&
                          config_.penalty_rows_max < config_.sequences_max;
  if (!may_matter) return false;
  const auto holds_one = [&](const Sequence* other) {
    return other->residency.penalty_slot >= 0 && other->is_branch_of_same(sequence);
  };
  return std::ranges::count_if(running_.rows(), holds_one) >= std::max<int64_t>(1, config_.penalty_rows_max / 2);
}

bool StartOrder::is_aged(const Sequence& sequence) {
  return sequence.ticket.num_overtaken >= kOvertakenMax;
}

// Branches start in their order. However long it takes for the one that computes the prompt: it runs.
bool StartOrder::waits_for_branch(Sequence& sequence) const {
  if (sequence.request.n == 1) return false;
  if (sequence.branch > 0 && sequence.state() == RequestState::kQueued) {
    const Sequence* former = branches_.find(sequence.request.id - 1);
    if (former != nullptr && former->state() == RequestState::kQueued) {
      sequence.ticket.is_held = true;
      return true;
    }
  }
  const uint32_t wanted = std::min(sequence.reusable(), sequence.num_prompt);
  bool is_coming = false;
  for (const Sequence* other : running_.rows()) {
    if (!other->is_branch_of_same(sequence)) continue;
    if (other->progress.computed >= wanted) return false;
    is_coming = true;
  }
  if (!is_coming) return false;
  sequence.ticket.is_held = true;
  sequence.found.blocks_needed = 0;
  return true;
}

bool StartOrder::waits_for_prefix(Sequence& sequence, uint64_t plan) const {
  const bool was_held = std::exchange(sequence.ticket.is_held, false);
  const uint64_t held_plans = sequence.ticket.held_since == 0 ? 0 : plan - sequence.ticket.held_since;
  const auto wanted = std::span(sequence.tokens).first(sequence.reusable());
  const bool has_states = kv_.place_tokens() > 0;
  for (const Sequence* other : running_.rows()) {
    if (other->progress.computed + 1 >= other->tokens.size() || other->origin.identity != sequence.origin.identity)
      continue;
    if (other->is_paused || !kv_.is_trusted(other->residency.tables)) continue;
    // Whether they share one more block than is there, or the tokens before the next state that is kept. From the end,
    // where they differ first.
    const size_t needed = has_states ? save_points_.next_in_prompt(*other, other->progress.computed)
                                     : round_up(other->progress.computed + 1, kv_.block_tokens());
    if (needed == 0) continue;
    if (std::min(other->tokens.size(), wanted.size()) < needed || sequence.same_adapter_until(*other) < needed)
      continue;
    if (!std::equal(std::make_reverse_iterator(wanted.begin() + needed), wanted.rend(),
                    std::make_reverse_iterator(other->tokens.begin() + needed)))
      continue;
    // Until a state is kept all of its prefix is of no use.
    if (held_plans >= (has_states && other->lane() <= sequence.lane() ? kHeldForStateMax : kHeldPlansMax)) {
      sequence.found.blocks_needed = 0;  // looked up again: what it shares grows though none is admitted
      return false;
    }
    if (sequence.ticket.held_since == 0) sequence.ticket.held_since = plan;
    sequence.ticket.is_held = true;
    return true;
  }
  if (was_held) sequence.found.is_known = false;  // what it has waited for is there now
  return false;
}

void StartOrder::count_overtaken(const Sequence& admitted, std::span<Sequence* const> passed_over) {
  const auto count = [this](Sequence& sequence) {
    ++sequence.ticket.num_overtaken;
    const bool waits_for_turn = sequence.state() == RequestState::kQueued && config_.batching == Batching::kContinuous;
    if (waits_for_turn) journal_.note_overtaken(sequence.ticket.num_overtaken);
  };
  for (const auto& [place, sequence] : queue_to_start(admitted.lane())) {
    if (sequence == &admitted) break;
    if (!sequence->ticket.is_held) count(*sequence);
  }
  for (Sequence* sequence : passed_over)
    if (sequence->lane() != admitted.lane()) count(*sequence);
}

}  // namespace llmrt
