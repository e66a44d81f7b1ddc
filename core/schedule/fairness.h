// Whose turn it is, among lanes. Two things may be scarce, and each is shared by its own shares: prompt tokens of a
// step, and room (KV blocks and slots), which a row holds for as long as its answer takes. While every request finds
// room, prompts are served and admitted by their lanes' shares of prefill; while one does not, the lane goes first that
// holds the fewest rows for its share of decode.
//
// Owns the lanes' virtual times (FairQueue) and reads the shares; knows no sequence. No errors. The engine's thread,
// except prefill_rate().
#pragma once

#include <array>
#include <cstdint>

#include "core/base/clock.h"
#include "core/schedule/class_shares.h"
#include "core/schedule/fair_queue.h"

namespace llmrt {

// By lane.
using LaneFlags = std::array<bool, kNumLanes>;
using LaneCounts = std::array<uint32_t, kNumLanes>;
using LaneOrder = std::array<Lane, kNumLanes>;

class Fairness {
 public:
  // The higher lanes may be served some steps of `step_tokens` ahead of their share.
  Fairness(const ClassShares& shares, uint32_t step_tokens);

  // Background has a share of its own only for a request that is older than a minute.
  static bool is_entitled(Lane lane, TimeNs age_ns);

  // Lanes in which an entitled request wants prompt tokens now; the order in which they are served. To be called once a
  // step: a lane that comes back begins where the others are.
  LaneOrder order_for_prefill(const LaneFlags& wants);
  void charge(Lane lane, uint32_t prompt_tokens) { prefill_.charge(lane, prompt_tokens); }

  // The lane with the fewest rows for its share first; those without an entitled request last.
  LaneOrder order_for_room(const LaneFlags& is_entitled, const LaneCounts& rows) const;
  // The lane's share of all rows that run, beside the other lanes that run or wait. `waits`: by lane.
  double entitled_rows(Lane lane, const LaneCounts& rows, const LaneFlags& waits) const;

  // What the lane gets of a rate of prompt tokens while `wants` do, too. Thread-safe.
  double prefill_rate(Lane lane, const LaneFlags& wants, double rate) const;

 private:
  const ClassShares shares_;
  FairQueue prefill_;  // charged in prompt tokens
};

}  // namespace llmrt
