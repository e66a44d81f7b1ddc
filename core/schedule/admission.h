// Which waiting sequences start in the step that is being made.
//
// A sequence that does not fit is passed over, at most 8 times. Then it, or one that had to yield, holds up the others
// of its lane and the lanes whose turn comes after it. No sequence starts in a step in which one has yielded, except
// those that it yielded for.
//
// Owns the round: its number, what was passed over in it, and which lanes are closed. Errors: pool_exhausted for one
// that has outgrown the pool, overloaded where nothing may wait for room (OnExhaustion::kReject). The engine's thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/kv/kv_space.h"
#include "core/schedule/branches.h"
#include "core/schedule/chunks.h"
#include "core/schedule/exits.h"
#include "core/schedule/prefixes.h"
#include "core/schedule/reclaim.h"
#include "core/schedule/reservations.h"
#include "core/schedule/running.h"
#include "core/schedule/start_order.h"
#include "core/schedule/starts.h"
#include "core/schedule/step_draft.h"

namespace llmrt {

class Admission {
 public:
  struct Parts {
    const SchedulerConfig& config;
    const KvSpace& kv;
    const Branches& branches;
    const Running& running;
    const Prefixes& prefixes;
    Reservations& reservations;
    StepDraft& draft;
    StartOrder& start_order;
    Starts& starts;
    Chunks& chunks;
    Reclaim& reclaim;
    Exits& exits;
  };
  explicit Admission(const Parts& parts) : parts_(parts) {}

  // A step with that number (they count up from 1): sequences may start.
  void begin_step(uint64_t plan);
  // A running sequence had to yield: none starts any more.
  void close() { is_open_ = false; }
  // What yielded since did so for those that wait: they may start in spite of it.
  void reopen();
  // Before the first admit() of a step. Nothing where the step is closed.
  void begin_round();
  // As many of the lane as there is room for. A lane may be asked twice in a round.
  void admit(Lane lane, TimeNs now);

  // A sequence has found no room in this round (before begin_round(): in the last one).
  bool is_room_scarce() const { return is_room_scarce_; }

 private:
  enum class Answer { kStarted, kLater, kNoRoom, kEnded };
  Answer try_start(Sequence& sequence, TimeNs now);
  std::optional<Answer> wait_for_adapter(Sequence& sequence, TimeNs now);
  bool must_reject(const Sequence& sequence) const;
  Error no_room(const Sequence& sequence) const;

  const Parts parts_;
  uint64_t plan_ = 0, round_ = 0;
  bool is_open_ = true;                         // no sequence has yielded, and none whose turn it is waits for room
  std::array<bool, kNumLanes> is_closed_ = {};  // the next of the lane needs more of a step than is left
  bool is_room_scarce_ = false;
  std::vector<Sequence*> passed_over_;  // they found no room in this round
};

}  // namespace llmrt
