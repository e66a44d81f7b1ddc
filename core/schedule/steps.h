// Fills the step that is being made, in this order: rows that need one token, then by lane the chunks of what runs and
// the sequences that may start; then the drafts of those rows.
//
// Patient rows (of batch and background, which decode while no client waits for them) may be left out for a long
// interactive prompt: what they would add to its step costs them one step. With more rows than the step has tokens,
// samples or room for logit changes, those left out come first the next time.
//
// Rows that are paused (Scheduler::set_paused) are left out. Where others find no room, one of them yields in each
// step.
//
// Owns whose turn it is among rows, and which step last left rows out. Errors: pool_exhausted for a row that outgrows
// the pool alone. Allocates nothing in the steady state. The engine's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/kv/kv_space.h"
#include "core/schedule/admission.h"
#include "core/schedule/chunks.h"
#include "core/schedule/draft_choice.h"
#include "core/schedule/exits.h"
#include "core/schedule/fairness.h"
#include "core/schedule/pace.h"
#include "core/schedule/running.h"
#include "core/schedule/step_draft.h"
#include "core/schedule/waiting.h"
#include "core/schedule/yields.h"

namespace llmrt {

class Steps {
 public:
  struct Parts {
    const SchedulerConfig& config;
    const Waiting& waiting;
    const Running& running;
    const Pace& pace;
    KvSpace& kv;
    Fairness& fairness;
    StepDraft& draft;
    Chunks& chunks;
    Yields& yields;
    Exits& exits;
    Admission& admission;
    DraftChoice& drafts;
  };
  explicit Steps(const Parts& parts);

  // The draft becomes that of the plan with this number (they count up from 1). `has_in_flight`: a plan is uncommitted.
  void fill(uint64_t plan, bool has_in_flight, TimeNs now);

 private:
  bool awaits_long_prompt() const;
  void take_units(TimeNs now);
  void count_waiting(StepSoFar* step) const;
  void take_prompts(TimeNs now);
  void take_left_out(TimeNs now);
  void yield_idle_beams(TimeNs now);
  void yield_paused();
  Sequence* next_to_start() const;
  bool make_room(Sequence& sequence, uint32_t positions, TimeNs now);

  LaneOrder order_for_prefill(TimeNs now);
  LaneOrder order_for_room(TimeNs now) const;
  bool has_share(Lane lane, TimeNs now) const;

  const Parts parts_;
  std::vector<Sequence*> taking_;  // those that ran when the step began
  std::vector<Sequence*> behind_;  // of these, the ones with a part of their prompt to compute
  bool leaves_out_ = false;        // rows of batch and background that decode, in this step
  uint64_t left_out_in_ = 0;       // the last plan that left out such rows though they could have run; 0 = none
  uint64_t turn_ = 0;  // admission number from which take_units serves: the first that the last step had to leave out
};

}  // namespace llmrt
