// KV blocks that admission counts on: what the running sequences may still take within their reservations (promised),
// what is always left free (the watermark), and how long answers are likely to get. fits() says whether one more has
// room beside that.
//
// Owns the promises and the lengths of past answers; writes what PrefixFound says of blocks. Promises are those of the
// last count() and of the sequences promised since. Errors: overloaded, with the numbers (no_room). The engine's
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/kv/kv_space.h"
#include "core/request/sequence.h"
#include "core/schedule/output_lengths.h"
#include "core/schedule/running.h"
#include "core/schedule/scheduler_config.h"

namespace llmrt {

class Reservations {
 public:
  // Both outlive it.
  Reservations(const SchedulerConfig& config, const KvSpace& kv);

  // Positions that a sequence which is admitted now counts on.
  uint32_t positions(const Sequence& sequence) const;
  // An answer of that many tokens has ended by itself or by its max_tokens.
  void learn(const Request& request, uint32_t num_output);

  void count(std::span<Sequence* const> running);
  // `sequence` runs now.
  void promise(const Sequence& sequence);

  // Whether there is room for `sequence`, which would begin with `match`. Beside others it counts on its reservation,
  // the promises and the watermark; alone on what it has, which may always be computed. The block that it copies from
  // is left out where holding it would cost the last free block.
  bool fits(Sequence& sequence, PrefixMatch* match, const Running& running) const;
  // fits() has said no, and nothing was admitted since that may have changed it.
  bool is_known_short(const Sequence& sequence, const Running& running) const;

  // By KV group: blocks that are missing for `sequence`, and those that come free, at most, when `row` yields.
  std::vector<uint64_t> missing_blocks(const Sequence& sequence) const;
  uint64_t yielded_blocks(uint32_t group, const Sequence& row) const;

  Error no_room(const Sequence& sequence) const;

 private:
  // That it may still take within its reservation.
  uint32_t blocks_promised(uint32_t group, const Sequence& sequence) const;
  // Blocks of the group that are not free for one that is admitted beside others.
  uint64_t kept(uint32_t group) const { return uint64_t{promised_[group]} + watermark_[group]; }

  const SchedulerConfig& config_;
  const KvSpace& kv_;
  std::vector<uint32_t> promised_, watermark_;  // by group, in blocks
  std::array<std::array<OutputLengths, kNumRequestClasses>, kNumRoutes> output_lengths_;
};

}  // namespace llmrt
