// The one way out of the scheduler, whatever the reason: everything that a branch holds is given back, and its client
// is told once.
//
// Owns whether the books are broken: then blocks and slots are not given back any more. Errors are those that end a
// branch: timeout, pool_exhausted, or what the caller gives. The engine's thread.
#pragma once

#include <optional>

#include "core/kv/kv_space.h"
#include "core/schedule/batches.h"
#include "core/schedule/branches.h"
#include "core/schedule/journal.h"
#include "core/schedule/reservations.h"
#include "core/schedule/running.h"
#include "core/schedule/timeouts.h"
#include "core/schedule/waiting.h"
#include "core/schedule/yields.h"

namespace llmrt {

// The numbers of a row that failed so are not what the model says.
bool is_spoilt(const std::optional<Error>& error);

class Exits {
 public:
  struct Parts {
    const SchedulerConfig& config;
    const KvSpace& kv;
    Branches& branches;
    Timeouts& timeouts;
    Waiting& waiting;
    Running& running;
    Batches& batches;
    Reservations& reservations;
    Journal& journal;
    Yields& yields;
  };
  explicit Exits(const Parts& parts) : parts_(parts) {}

  // The branch moves to `state` and emits `event` with `finish`. In a terminal state it is forgotten at once.
  void end(Sequence& sequence, RequestState state, TokenEvent event, FinishReason finish, TimeNs now);
  // The branch, or all beams of its request together.
  void end_all(Sequence& sequence, RequestState state, const TokenEvent& event, FinishReason finish, TimeNs now);
  // The pool has no room for that many positions of it alone.
  void end_exhausted(Sequence& sequence, uint32_t positions, TimeNs now);
  // A request of which no branch has begun: all of them are rejected.
  void reject(const Sequence& sequence, const Error& error, TimeNs now);
  // A branch that waits, which can never start: it, or all beams of its request together.
  void refuse(Sequence& sequence, const Error& error, TimeNs now);
  // What is past its time.
  void expire(TimeNs now);
  // Everything that waits or runs. With kInternal the books are broken from now on.
  void fail_all(const Error& error, TimeNs now);

  // Its receiver lets go of a branch that kStreaming: it moves to `state`.
  void let_go(Sequence& sequence, RequestState state, const SentTimes& sent);

 private:
  const Parts parts_;
  bool is_broken_ = false;
};

}  // namespace llmrt
