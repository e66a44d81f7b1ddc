// What the device sampled becomes tokens, events and ends.
//
// Owns nothing; takes tokens in flight from Progress and appends them. Verdicts of branches that have ended are
// dropped; a preempted branch takes its token. Of a run those behind the first draft that was wrong are dropped. Errors
// are those of the verdicts: each ends its branch, or all beams of its request, and with a spoilt one what stands
// behind the row's keys and values is forgotten. The engine's thread.
#pragma once

#include <span>

#include "core/kv/kv_space.h"
#include "core/schedule/branches.h"
#include "core/schedule/draft_choice.h"
#include "core/schedule/exits.h"
#include "core/schedule/iteration_plan.h"
#include "core/schedule/journal.h"
#include "core/schedule/prefixes.h"
#include "core/schedule/running.h"
#include "core/schedule/yields.h"

namespace llmrt {

class Commits {
 public:
  struct Parts {
    const KvSpace& kv;
    const Branches& branches;
    const Running& running;
    Prefixes& prefixes;
    Journal& journal;
    Yields& yields;
    Exits& exits;
    DraftChoice& drafts;
  };
  explicit Commits(const Parts& parts) : parts_(parts) {}

  // A verdict for each of the plan's samples; what they hold is moved out of them.
  void take(const IterationPlan& plan, std::span<Verdict> verdicts, TimeNs now);

 private:
  void take_row(const IterationPlan& plan, const PlanRow& row, std::span<Verdict> verdicts, TimeNs now);
  void note_run(Sequence& sequence, const PlanRow& row, std::span<const PlanSample> samples,
                std::span<const Verdict> verdicts);
  void take_forced(Sequence& sequence, const PlanSample& sample, Verdict& verdict, TimeNs now);
  void take_drawn(Sequence& sequence, Verdict& verdict, TimeNs now);
  void take_candidates(Sequence& beam, Verdict& verdict, TimeNs now);
  void tell_answers(std::span<Sequence* const> beams, TimeNs now);

  const Parts parts_;
};

}  // namespace llmrt
