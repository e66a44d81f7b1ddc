// How a waiting sequence begins to run: it leaves the queue, gets its slot and its tables, and takes over what it
// begins with.
//
// Owns nothing. Errors: none; there is room (Reservations::fits) and a slot. The engine's thread.
#pragma once

#include <span>

#include "core/kv/kv_space.h"
#include "core/schedule/branches.h"
#include "core/schedule/journal.h"
#include "core/schedule/pace.h"
#include "core/schedule/prefixes.h"
#include "core/schedule/reservations.h"
#include "core/schedule/running.h"
#include "core/schedule/start_order.h"
#include "core/schedule/timeouts.h"
#include "core/schedule/waiting.h"

namespace llmrt {

class Starts {
 public:
  struct Parts {
    const SchedulerConfig& config;
    const KvSpace& kv;
    const Branches& branches;
    const Reservations& reservations;
    Prefixes& prefixes;
    Pace& pace;
    Timeouts& timeouts;
    Waiting& waiting;
    Running& running;
    StartOrder& start_order;
    Journal& journal;
  };
  explicit Starts(const Parts& parts) : parts_(parts) {}

  // `sequence.progress.computed` is what `match` gives it. `passed_over`: those that found no room in this round.
  void start(Sequence& sequence, const PrefixMatch& match, std::span<Sequence* const> passed_over, TimeNs now);

 private:
  void stop_waiting(Sequence& sequence, std::span<Sequence* const> passed_over);

  const Parts parts_;
};

}  // namespace llmrt
