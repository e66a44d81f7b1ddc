// What waits may start, against what the running sequences may still take.
#include <algorithm>

#include "core/schedule/scheduler_impl.h"

namespace llmrt {
namespace {

constexpr uint32_t kTriesMax = 8;  // of requests of one lane that find no room, in one step

}  // namespace

// Who does not fit is passed over, at most kOvertakenMax times. Then he, or one who had to yield, holds up the others
// of his lane and the lanes whose turn comes after his.
void Scheduler::Impl::admit(Lane lane, StepBudget* budget, TimeNs now) {
  bool reclaimed = false;
  uint32_t num_without_room = 0;
  bool& is_closed = budget->is_closed[static_cast<size_t>(lane)];  // a lane may be asked twice in a round
  while (budget->admits && !is_closed && budget->chunk_tokens > 0 && num_without_room < kTriesMax) {
    Sequence* sequence = pick_next(lane);
    if (sequence == nullptr) break;
    sequence->ticket.tried_in = num_rounds;
    // Beside others that held the same blocks it has outgrown the pool, and there will never be room.
    const uint32_t positions = std::min(sequence->num_known(), sequence->positions_max());
    if (sequence->progress.pending == 0 && !kv.can_hold(positions)) {
      end_exhausted(*sequence, positions, now);
      continue;
    }
    Admission admission = try_admit(*sequence, budget);
    if (admission == Admission::kNoRoom && reclaim_room(*sequence, budget)) {
      budget->admits = reclaimed = true;
      admission = try_admit(*sequence, budget);
    }
    if (admission == Admission::kDone) continue;
    const bool goes_first = sequence->state() == RequestState::kPreempted || is_aged(*sequence);
    if (admission == Admission::kLater) {
      is_closed = goes_first;
    } else if (must_refuse(*sequence)) {
      refuse(*sequence, now);
    } else {
      room_is_scarce = true;
      passed_over.push_back(sequence);
      budget->admits = budget->admits && !goes_first;
      num_without_room = !running.has_slot() ? kTriesMax : num_without_room + 1;
    }
  }
  budget->admits = budget->admits && !reclaimed;
}

void Scheduler::Impl::begin_admission() {
  ++num_rounds;
  passed_over.clear();
  room_is_scarce = false;
  count_promises();
}

// Where nothing may wait for room: a request of which no branch has begun.
bool Scheduler::Impl::must_refuse(const Sequence& sequence) const {
  if (config.on_exhaustion != OnExhaustion::kReject) return false;
  return std::ranges::all_of(branches.of_same(sequence), [](const Sequence* branch) {
    return branch != nullptr && branch->state() == RequestState::kQueued;
  });
}

void Scheduler::Impl::refuse(Sequence& sequence, TimeNs now) {
  const Error error = no_room(sequence);
  journal.note_rejected();
  for (Sequence* branch : branches.of_same(sequence))
    end(*branch, RequestState::kRejected, {.error = error}, FinishReason::kError, now);
}

Error Scheduler::Impl::no_room(const Sequence& sequence) const {
  if (!running.has_slot())
    return make_error(ErrorCode::kOverloaded, "no room now: {} requests run, which is the most", running.size());
  if (sequence.request.sampling.has_penalties() && !running.has_penalty_slot())
    return make_error(ErrorCode::kOverloaded, "no room now: {} requests with penalties run, which is the most",
                      config.penalty_rows_max);
  uint32_t g = 0;
  const auto lacks = [&](uint32_t group) {
    return kv.blocks_for(group, sequence.positions_max()) + promised[group] + watermark[group] > kv.num_free(group);
  };
  while (g + 1 < kv.num_groups() && !lacks(g)) ++g;
  return make_error(ErrorCode::kOverloaded, "no room now: {} KV blocks of {} are needed, {} are free, {} of them kept",
                    kv.blocks_for(g, sequence.positions_max()), config.kv_pools[g].block_tokens, kv.num_free(g),
                    std::min(kv.num_free(g), promised[g] + watermark[g]));
}

Scheduler::Impl::Admission Scheduler::Impl::try_admit(Sequence& sequence, StepBudget* budget) {
  if (sequence.progress.pending > 0) return Admission::kLater;  // resumed when all its tokens are known
  const uint32_t num_tokens = static_cast<uint32_t>(sequence.tokens.size());
  const bool counts = sequence.request.sampling.has_penalties();
  if (!running.has_slot() || (counts && !running.has_penalty_slot())) return Admission::kNoRoom;
  if (counts && num_tokens > budget->recount_tokens) return Admission::kLater;
  // Long prompts are not looked up in every step of a full pool that admits nobody.
  if (!running.is_empty() && sequence.found.needed_at == running.num_admissions() &&
      uint64_t{sequence.found.blocks_needed} + promised[0] + watermark[0] > kv.num_free(0))
    return Admission::kNoRoom;

  // A step has room for what the beams of a whole context share and for what a context loads, so whoever comes first in
  // one gets there.
  const auto shares_too_much = [&] {
    return sequence.found.prefix_blocks > budget->shared_blocks || sequence.found.host_blocks > budget->loaded_blocks;
  };
  if (sequence.found.is_known && shares_too_much()) return Admission::kLater;

  PrefixMatch match = look_up(sequence);
  if (shares_too_much()) return Admission::kLater;
  if (!fits(sequence, &match)) return Admission::kNoRoom;
  sequence.progress.computed = match.num_tokens(kv.block_tokens());
  if (count_that_fits(sequence, std::min(sequence.gap(), budget->chunk_tokens), *budget) == 0) return Admission::kLater;

  budget->shared_blocks -= match.num_full();
  budget->loaded_blocks -= static_cast<uint32_t>(match.host_blocks.size());
  if (counts) budget->recount_tokens -= num_tokens;
  start(sequence, match);
  take_chunk(sequence, budget);
  LLMRT_CHECK(sequence.take.tokens > 0, "an admitted sequence runs at once");
  for (uint32_t g = 0; g < kv.num_groups(); ++g) promised[g] += blocks_promised(g, sequence);
  return Admission::kDone;
}

void Scheduler::Impl::count_promises() {
  for (uint32_t g = 0; g < kv.num_groups(); ++g) {
    promised[g] = 0;
    for (const Sequence* sequence : running.rows()) promised[g] += blocks_promised(g, *sequence);
  }
}

// That it may still take within its reservation.
uint32_t Scheduler::Impl::blocks_promised(uint32_t kv_group, const Sequence& sequence) const {
  const uint32_t blocks = kv.blocks_for(kv_group, sequence.residency.reserved_tokens);
  return blocks - std::min(blocks, static_cast<uint32_t>(sequence.residency.tables[kv_group].blocks.size()));
}

// Alone in the pool a sequence needs neither watermark nor reservation: what it has may always be computed. Blocks that
// it shares with running sequences cost nothing; the one that it copies from must stay until then, and is left out
// where holding it would cost the last block.
bool Scheduler::Impl::fits(Sequence& sequence, PrefixMatch* match) {
  const uint32_t num_tokens = static_cast<uint32_t>(sequence.tokens.size());
  const bool alone = running.is_empty();
  const uint32_t positions = alone ? std::min(num_tokens, sequence.positions_max()) : positions_reserved(sequence);
  const uint32_t num_shared = kv.num_live(*match);
  for (uint32_t g = 0; g < kv.num_groups(); ++g) {
    const uint64_t own = kv.blocks_for(g, positions) - num_shared;
    const uint64_t needed = own + (alone ? 0 : promised[g] + watermark[g]);
    if (needed > kv.num_free(g)) {
      sequence.found.blocks_needed = static_cast<uint32_t>(own);
      sequence.found.needed_at = running.num_admissions();
      return false;
    }
    if (needed < kv.num_free(g) || match->partial_tokens == 0 || kv.is_live(match->partial_block)) continue;
    match->drop_partial();
  }
  return true;
}

uint32_t Scheduler::Impl::positions_reserved(const Sequence& sequence) {
  if (reserves_all(config.on_exhaustion)) return sequence.positions_max();
  uint32_t output = config.reserve_output_tokens;
  if (config.learns_output) output = lengths_of(sequence.request).expected(output);
  return static_cast<uint32_t>(std::min<uint64_t>(sequence.tokens.size() + output, sequence.positions_max()));
}

void Scheduler::Impl::start(Sequence& sequence, const PrefixMatch& match) {
  const bool is_first = sequence.state() == RequestState::kQueued;
  count_overtaken(sequence);
  waiting.remove(sequence);
  sequence.move_to(RequestState::kPrefilling);
  if (!sequence.beam.search) {
    timeouts.set(sequence);
  } else {
    for (Sequence* beam : branches.of_same(sequence)) {
      beam->request.start_by_ns = 0;  // they start together
      timeouts.set(*beam);
    }
  }
  running.admit(sequence);
  sequence.residency.reserved_tokens = positions_reserved(sequence);
  if (is_first) {
    // All that it will ever hold, so that nothing is allocated while it runs.
    sequence.residency.tables = kv.make_tables(sequence.positions_max());
    sequence.tokens.reserve(size_t{sequence.num_prompt} + sequence.request.max_tokens);
    if (sequence.request.max_tokens > 1) sequence.record.times.inter_token = std::make_unique<LatencySketch>();
  }
  if (is_first && sequence.branch == 0) {
    sequence.record.cached_tokens = sequence.progress.computed;
    pace.note_served(sequence.record.cached_tokens);
    journal.note_start(sequence, config.prefix_cache != PrefixCacheKind::kOff,
                       match.host_blocks.size() * kv.block_tokens());
  }
  kv.share(sequence.residency.tables, match);
  if (!match.host_blocks.empty()) {
    kv.load(sequence.residency.tables, match);
    keep_filled(sequence);  // for those that are admitted in the same plan
  }
  if (match.partial_tokens == 0) return;
  kv.pin(match.partial_block);
  if (match.num_full() == 0) sequence.origin.copied_root = kv.root(match.partial_block);
  sequence.residency.copy_source = match.partial_block;
  sequence.residency.copy_tokens = match.partial_tokens;
}

}  // namespace llmrt
