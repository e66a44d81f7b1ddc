// Rows that a lane has beyond its share are lent: a higher lane that has less than its own takes them back for a
// request that finds no room. A lower lane waits until an answer ends.
//
// Owns nothing. Errors: none. The engine's thread.
#pragma once

#include "core/schedule/fairness.h"
#include "core/schedule/reservations.h"
#include "core/schedule/running.h"
#include "core/schedule/waiting.h"
#include "core/schedule/yields.h"

namespace llmrt {

class Reclaim {
 public:
  struct Parts {
    const SchedulerConfig& config;
    const Fairness& fairness;
    const Waiting& waiting;
    const Running& running;
    Reservations& reservations;
    Journal& journal;
    Yields& yields;
  };
  explicit Reclaim(const Parts& parts) : parts_(parts) {}

  // True when others have yielded, so that `sequence` should fit now. None yields unless enough can; but blocks that
  // several hold may turn out to stay. Rows that were admitted in this `round` do not yield.
  bool make_room(const Sequence& sequence, uint64_t round);

 private:
  double entitled_rows(Lane lane) const;

  const Parts parts_;
};

}  // namespace llmrt
