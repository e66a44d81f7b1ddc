// The scheduler's insides, private to core/schedule. The parts of a step, in order: take_units (rows that need one
// token), take_prompts (by lane: chunks of what runs, then who may start), write_plan. Each takes from one StepBudget.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/kv/kv_space.h"
#include "core/request/sequence.h"
#include "core/schedule/branches.h"
#include "core/schedule/fairness.h"
#include "core/schedule/journal.h"
#include "core/schedule/pace.h"
#include "core/schedule/plan_writer.h"
#include "core/schedule/queue_limits.h"
#include "core/schedule/reservations.h"
#include "core/schedule/running.h"
#include "core/schedule/scheduler.h"
#include "core/schedule/start_order.h"
#include "core/schedule/step_draft.h"
#include "core/schedule/timeouts.h"
#include "core/schedule/waiting.h"

namespace llmrt {

struct Scheduler::Impl {
  explicit Impl(SchedulerConfig from);

  // lifecycle.cpp: requests come and go
  void add(Request request, TimeNs now);
  void add_branch(std::unique_ptr<Sequence> owned, const std::optional<Error>& refusal, TimeNs now);
  void expire(TimeNs now);
  // The one way out, whatever the reason: gives everything back, moves to `state`, emits `event` (with `finish`).
  void end(Sequence& sequence, RequestState state, TokenEvent event, FinishReason finish, TimeNs now);
  // `forget`: its keys and values are not kept.
  void give_back(Sequence& sequence, bool forget);
  void forget(Sequence& sequence, const SentTimes& sent);

  // preemption.cpp: who yields
  bool reclaim_room(const Sequence& sequence);
  void preempt(Sequence& sequence, RequestId wanted_by);
  bool is_worth_storing(const Sequence& sequence) const;

  // rows.cpp: what runs goes on
  bool awaits_long_prompt() const;
  void take_units(TimeNs now);
  void take_left_out(TimeNs now);
  void take_prompts(TimeNs now);
  void take_chunk(Sequence& sequence);
  bool make_room(Sequence& sequence, uint32_t positions, TimeNs now);
  // The pool has no room for that many positions of it alone.
  void end_exhausted(Sequence& sequence, uint32_t positions, TimeNs now);

  // lanes.cpp: whose turn it is
  LaneOrder order_for_prefill(TimeNs now);
  LaneOrder order_for_room(TimeNs now) const;
  bool has_share(Lane lane, TimeNs now) const;
  double entitled_rows(Lane lane) const;

  // admission.cpp: what waits may start
  void begin_admission();
  void admit(Lane lane, TimeNs now);
  enum class Admission { kDone, kLater, kNoRoom };
  Admission try_admit(Sequence& sequence);
  bool must_refuse(const Sequence& sequence) const;
  void refuse(Sequence& sequence, TimeNs now);
  Error no_room(const Sequence& sequence) const;
  void start(Sequence& sequence, const PrefixMatch& match);

  // commit.cpp
  void commit_row(const IterationPlan& plan, const PlanRow& row, std::span<Verdict> verdicts, TimeNs now);
  static bool is_spoilt(const std::optional<Error>& error);  // the row's numbers are not what the model says
  void commit_forced(Sequence& sequence, const PlanSample& sample, Verdict& verdict, TimeNs now);
  void commit_drawn(Sequence& sequence, Verdict& verdict, TimeNs now);

  // beams.cpp: requests with beam search
  std::vector<int32_t> ends_of(const Request& request) const;
  // end() for the branch, or for all beams together.
  void end_all(Sequence& sequence, RequestState state, const TokenEvent& event, FinishReason finish, TimeNs now);
  void commit_beam(Sequence& sequence, Verdict& verdict, TimeNs now);
  void go_on(std::span<Sequence* const> beams, std::span<const BeamSearch::Step> steps);
  void begin_again(Sequence& sequence, const std::vector<int32_t>& tokens);
  void tell_answers(std::span<Sequence* const> beams, const BeamSearch& search, TimeNs now);
  void yield_idle_beams(TimeNs now);

  // books.cpp
  Status check_books() const;

  const SchedulerConfig config;
  KvSpace kv;
  Prefixes prefixes;
  Fairness fairness;
  Pace pace;

  Branches branches;
  Timeouts timeouts;
  Waiting waiting;
  QueueLimits limits;
  Batches batches;
  Running running;
  Reservations reservations;
  std::vector<Sequence*> taking;               // those that ran when the step began
  std::vector<Sequence*> behind;               // of these, the ones with a part of their prompt to compute
  std::vector<Sequence*> passed_over;          // that found no room in this round of admission
  bool room_is_scarce = false;                 // somebody found none in the last round of admission
  bool leaves_out = false;                     // rows of batch and background that decode, in this step
  bool admits = true;                          // nobody has yielded, and nobody whose turn it is waits for room
  std::array<bool, kNumLanes> is_closed = {};  // whose turn it is in that lane needs more of a step than is left
  uint64_t num_rounds = 0;                     // of admission
  uint64_t left_out_in = 0;  // the last plan without rows of batch and background that could have run; 0 = none
  uint64_t turn = 0;  // admission number from which take_units serves: the first that the last step had to leave out

  StepDraft draft;
  PlanWriter plans;
  Journal journal;
  StartOrder start_order;
  bool quarantined = false;  // the books are broken: blocks and slots are not given back any more
};

}  // namespace llmrt
