// Prefixes: in which order what waits may find the most of them, and what is kept for later requests.
//
// Branches of one request share its prompt, with a prefix cache and without. The first one that is admitted computes
// it; the others wait for that, and then begin with its full blocks and a copy of the filled slots of the next one, but
// for the last token of the prompt: what comes out of it is what they draw from.
//
// Other requests share whole blocks. The common part of one block more is shared only among requests of one cache salt:
// how much of a prompt was known is told to its client and shows in the time that it takes, so with parts of blocks
// whoever knows the beginning of another's text could try the next token, and the one after it. A whole block he must
// know but for what he tries. Nothing else here may depend on less than whole blocks of others either: neither the
// order in which requests go nor whether one waits for another.
//
// Within a lane preempted sequences come first, whatever they find; then by when they are due, which is the deadline
// or, where there is none, some time after the arrival. Among the first kLookAhead that have no deadline the one with
// the longest known prefix goes next, so that a prefix is used while it is there, and between equals the shortest
// prompt; but nobody is overtaken more than kOvertakenMax times. A request whose next block a running one is still to
// compute waits for that instead of computing it twice, for at most kHeldPlansMax plans; those that go before it
// meanwhile do not count as overtaking. (A prompt in long chunks takes more plans, but leaves no tokens of a step to
// others either. One that is scored leaves some and may be slow.)
#include <algorithm>
#include <bit>
#include <iterator>
#include <span>
#include <utility>

#include "core/schedule/scheduler_impl.h"

namespace llmrt {
namespace {

constexpr uint32_t kLookAhead = 64;
constexpr uint32_t kScanMax = 1024;  // with branches that wait for others
constexpr uint32_t kOvertakenMax = 8;
constexpr uint64_t kHeldPlansMax = 16;

// Lengths of one power of two count as equal, and so do all below 64 tokens: then the first come goes first.
int length_class(const Sequence& sequence) {
  return std::bit_width(sequence.tokens.size() / 64);
}

bool goes_before(const Sequence& a, const Sequence& b) {
  if (a.found.prefix_blocks != b.found.prefix_blocks) return a.found.prefix_blocks > b.found.prefix_blocks;
  return length_class(a) < length_class(b);
}

uint32_t common_tokens(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<uint32_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

// Null when all of the lane that may go now wait for a running sequence's prefix or were tried in this round.
Sequence* Scheduler::Impl::pick_next(Lane lane) {
  if (!somebody_may_start()) return nullptr;
  const Waiting::Queue& queue = queue_to_start(lane);
  Sequence* best = nullptr;
  uint32_t num_seen = 0, num_scanned = 0;
  for (const auto& [place, sequence] : queue) {
    if (!may_start(*sequence)) continue;
    if (++num_scanned > kScanMax) break;
    if (sequence->beam.is_asked) continue;
    const bool waits = waits_for_branch(*sequence);
    if (!waits && has_its_penalty_rows(*sequence)) {
      sequence->ticket.is_held = true;
      continue;
    }
    if (sequence->state() == RequestState::kPreempted) return waits ? nullptr : sequence;
    if (waits) continue;
    if (++num_seen > kLookAhead) break;
    sequence->take_prompt();
    if (sequence->ticket.tried_in == num_rounds) continue;
    if (kv.has_cache() && waits_for_prefix(*sequence)) continue;
    sequence->ticket.is_held = false;  // so from now on it counts who overtakes it
    if (is_aged(*sequence) || (best == nullptr && sequence->request.deadline_ns != 0)) return sequence;
    if (kv.has_cache() && !sequence->found.is_known && queue.size() > 1) look_up(*sequence);
    if (best == nullptr || goes_before(*sequence, *best)) best = sequence;
  }
  return best;
}

// Without those that wait for a slot for penalties, however many: others take none of these, so holding them up would
// bring nobody nearer to one, nor do they overtake who waits for that.
const Waiting::Queue& Scheduler::Impl::queue_to_start(Lane lane) const {
  const bool has_slots = running.has_penalty_slot() || config.on_exhaustion == OnExhaustion::kReject;
  return has_slots ? waiting.queue(lane) : waiting.plain_queue(lane);
}

// Where rows with token counts are scarce one request does not take all of them: then it waits for its own branches.
bool Scheduler::Impl::has_its_penalty_rows(const Sequence& sequence) const {
  const bool may_matter = sequence.request.n > 1 && sequence.request.sampling.has_penalties() &&
                          config.penalty_rows_max < config.sequences_max;
  if (!may_matter) return false;
  const auto holds_one = [&](const Sequence* other) {
    return other->residency.penalty_slot >= 0 && other->is_branch_of_same(sequence);
  };
  return std::ranges::count_if(running.rows(), holds_one) >= std::max<int64_t>(1, config.penalty_rows_max / 2);
}

bool Scheduler::Impl::is_aged(const Sequence& sequence) const {
  return sequence.ticket.num_overtaken >= kOvertakenMax;
}

// Branches start in their order. However long it takes for the one that computes the prompt: it runs.
bool Scheduler::Impl::waits_for_branch(Sequence& sequence) const {
  if (sequence.request.n == 1) return false;
  if (sequence.branch > 0 && sequence.state() == RequestState::kQueued) {
    const Sequence* former = branches.find(sequence.request.id - 1);
    if (former != nullptr && former->state() == RequestState::kQueued) {
      sequence.ticket.is_held = true;
      return true;
    }
  }
  if (kv.num_groups() != 1) return false;
  const uint32_t wanted = std::min(sequence.reusable(), sequence.num_prompt);
  bool is_coming = false;
  for (const Sequence* other : running.rows()) {
    if (!other->is_branch_of_same(sequence)) continue;
    if (other->progress.computed >= wanted) return false;
    is_coming = true;
  }
  if (!is_coming) return false;
  sequence.ticket.is_held = true;
  sequence.found.blocks_needed = 0;
  return true;
}

bool Scheduler::Impl::waits_for_prefix(Sequence& sequence) const {
  const bool was_held = std::exchange(sequence.ticket.is_held, false);
  const uint64_t plan = num_plans + 1;  // the one that is being made
  if (sequence.ticket.held_since != 0 && plan - sequence.ticket.held_since >= kHeldPlansMax) {
    sequence.found.blocks_needed = 0;  // looked up again: what it shares grows though nobody is admitted
    return false;
  }
  const auto wanted = std::span(sequence.tokens).first(sequence.reusable());
  for (const Sequence* other : running.rows()) {
    if (other->progress.computed + 1 >= other->tokens.size() || other->origin.identity != sequence.origin.identity)
      continue;
    if (!kv.is_trusted(other->residency.tables)) continue;
    // Whether they share one more block than is there. From its end, where they differ first.
    const size_t needed = round_up(other->progress.computed + 1, kv.block_tokens());
    if (std::min(other->tokens.size(), wanted.size()) < needed) continue;
    if (!std::equal(std::make_reverse_iterator(wanted.begin() + needed), wanted.rend(),
                    std::make_reverse_iterator(other->tokens.begin() + needed)))
      continue;
    if (sequence.ticket.held_since == 0) sequence.ticket.held_since = plan;
    sequence.ticket.is_held = true;
    return true;
  }
  if (was_held) sequence.found.is_known = false;  // what it has waited for is there now
  return false;
}

// The longest beginning that is there: in the cache, or in the table of a running branch of the same request. (One that
// was admitted in this plan has nothing more to give than what it was made from, which was asked before it. So no block
// is copied to and from in one step.)
PrefixMatch Scheduler::Impl::look_up(Sequence& sequence) const {
  const auto wanted = std::span(sequence.tokens).first(sequence.reusable());
  PrefixMatch match = kv.match(sequence.origin.identity, wanted);
  if (!sequence.origin.has_salt) match.drop_partial();
  for (const Sequence* other : running.rows()) {
    if (sequence.request.n == 1 || match.num_tokens(kv.block_tokens()) == wanted.size()) break;
    if (!other->is_branch_of_same(sequence)) continue;
    const uint32_t common = std::min(common_tokens(other->tokens, wanted), other->progress.computed);
    if (common <= match.num_tokens(kv.block_tokens())) continue;
    PrefixMatch held = kv.match(other->residency.tables, common);
    if (held.num_tokens(kv.block_tokens()) > 0) match = std::move(held);
  }
  sequence.found.prefix_blocks = match.num_full();
  sequence.found.host_blocks = static_cast<uint32_t>(match.host_blocks.size());
  sequence.found.is_known = true;
  sequence.found.blocks_needed = 0;
  return match;
}

void Scheduler::Impl::count_overtaken(const Sequence& admitted) {
  const auto count = [this](Sequence& sequence) {
    ++sequence.ticket.num_overtaken;
    const bool waits_for_turn = sequence.state() == RequestState::kQueued && config.batching == Batching::kContinuous;
    if (waits_for_turn) journal.note_overtaken(sequence.ticket.num_overtaken);
  };
  for (const auto& [place, sequence] : queue_to_start(admitted.lane())) {
    if (sequence == &admitted) break;
    if (!sequence->ticket.is_held) count(*sequence);
  }
  for (Sequence* sequence : passed_over)
    if (sequence->lane() != admitted.lane()) count(*sequence);
}

// An adapter's id stands for its content: ids are not given twice. Without a prefix cache (but with a host tier, which
// needs its books) nobody else's blocks are a request's own.
Digest Scheduler::Impl::identity_of(const Sequence& sequence) const {
  const Request& request = sequence.request;
  Sha256 identity;
  identity.add(config.cache_identity)
      .add(request.adapter_id)
      .add(uint32_t{request.batch_invariant})
      .add_text(request.cache_salt);
  if (config.prefix_cache == PrefixCacheKind::kOff) identity.add(request.id - sequence.branch);
  return identity.finish();
}

// Blocks that are full of known tokens. Their positions may be in flight: whatever reads them is queued behind.
void Scheduler::Impl::keep_filled(Sequence& sequence) {
  const size_t known = std::min<size_t>(sequence.progress.computed, sequence.tokens.size());
  kv.keep(sequence.residency.tables, sequence.origin.identity, std::span(sequence.tokens).first(known));
  if (const uint64_t root = kv.root(sequence.residency.tables); root != 0) sequence.origin.root = root;
}

}  // namespace llmrt
