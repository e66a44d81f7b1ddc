// How a running sequence stops before its end: it yields to another, or it ends, or its beam begins again. What it had
// computed stays in the prefix cache until others take its blocks; where swapping is cheaper than computing again those
// blocks are stored in the host tier first.
//
// Owns nothing. A sequence that has stopped has no blocks, no slot and nothing of the step that is being made. No
// errors. The engine's thread.
#pragma once

#include <vector>

#include "core/kv/kv_space.h"
#include "core/schedule/branches.h"
#include "core/schedule/journal.h"
#include "core/schedule/pace.h"
#include "core/schedule/prefixes.h"
#include "core/schedule/running.h"
#include "core/schedule/step_draft.h"
#include "core/schedule/waiting.h"

namespace llmrt {

class Yields {
 public:
  struct Parts {
    const SchedulerConfig& config;
    const KvSpace& kv;
    const Pace& pace;
    const Branches& branches;
    Prefixes& prefixes;
    Waiting& waiting;
    Running& running;
    StepDraft& draft;
    Journal& journal;
  };
  explicit Yields(const Parts& parts) : parts_(parts) {}

  // `sequence` runs, and waits at the front of its lane then. `wanted_by`: the request that needs its room, which may
  // be its own.
  void preempt(Sequence& sequence, RequestId wanted_by);
  // A beam that runs or waits goes on behind `tokens`, and waits for its turn.
  void begin_again(Sequence& sequence, const std::vector<int32_t>& tokens);
  // It ends while it runs. With `forget` its keys and values are not kept for others.
  void stop(Sequence& sequence, bool forget);

 private:
  bool is_worth_storing(const Sequence& sequence) const;

  const Parts parts_;
};

}  // namespace llmrt
