// Which waiting sequence of a lane starts next.
//
// Preempted sequences come first, whatever prefix they find; then the others by when they are due (Waiting). Among the
// first 64 that have no deadline the one with the longest known prefix goes next, so that a prefix is used while it is
// there, and between equals the shortest prompt; but none is overtaken more than 8 times. Order and waiting depend on
// whole blocks of others alone (prefixes.h says why).
//
// A sequence whose next block a running one is still to compute waits for that instead of computing it twice, for at
// most 16 plans; those that go before it meanwhile do not count as overtaking. Where the model has states, what it
// waits for is the next checkpoint of what both have in common, for up to 256 plans of one that is as urgent. (A prompt
// in long chunks takes more plans, but leaves no tokens of a step to others either. One that is scored leaves some and
// may be slow.) Branches of one request start in their order, and wait for the one that computes the prompt, however
// long that takes.
//
// Owns nothing; writes num_overtaken, held_since and is_held of WaitTicket, and what PrefixFound says. No errors. The
// engine's thread.
#pragma once

#include <cstdint>
#include <span>

#include "core/kv/kv_space.h"
#include "core/schedule/batches.h"
#include "core/schedule/branches.h"
#include "core/schedule/journal.h"
#include "core/schedule/prefixes.h"
#include "core/schedule/running.h"
#include "core/schedule/save_points.h"
#include "core/schedule/waiting.h"

namespace llmrt {

class StartOrder {
 public:
  StartOrder(const SchedulerConfig& config, const KvSpace& kv, const Prefixes& prefixes, const Branches& branches,
             const Waiting& waiting, const Running& running, const Batches& batches, Journal& journal);

  // In the `round` of admission, for the plan with that number (both count up from 1). Null when all that may start now
  // wait for a running sequence's prefix or were tried in this round.
  Sequence* next(Lane lane, uint64_t round, uint64_t plan);
  // It has been overtaken as often as it may: it goes before all that are new.
  static bool is_aged(const Sequence& sequence);
  // `admitted`, which still waits, is about to start: counts for those before it in its queue, and for those of other
  // lanes that found no room in this round.
  void count_overtaken(const Sequence& admitted, std::span<Sequence* const> passed_over);

 private:
  const Waiting::Queue& queue_to_start(Lane lane) const;
  bool has_its_penalty_rows(const Sequence& sequence) const;
  bool waits_for_branch(Sequence& sequence) const;
  bool waits_for_prefix(Sequence& sequence, uint64_t plan) const;

  const SchedulerConfig& config_;
  const KvSpace& kv_;
  const Prefixes& prefixes_;
  const Branches& branches_;
  const Waiting& waiting_;
  const Running& running_;
  const Batches& batches_;
  Journal& journal_;
  const SavePoints save_points_;
};

}  // namespace llmrt
