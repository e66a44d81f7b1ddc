// Decides what runs next. It holds ids, tokens and counts, never device memory and never text: requests come in, plans
// go out, verdicts come back, events go out. Time is a parameter, so a simulator can drive it.
//
// One rule: a sequence has `computed` (positions scheduled, in flight included) and `wanted` (tokens known or in
// flight); a step closes part of the gap, and a row that reaches `wanted` samples. Chunked prefill, decode and
// recompute after preemption are all that rule, and a prefix that the cache knows is a `computed` that starts behind
// it.
//
// Loop (plain: commit before the next plan; one step ahead: one more plan before the commit of the former):
//   plan(now) -> lower, submit ... wait, StopMatcher -> commit(plan, verdicts, now) -> take_events -> sinks
// One step ahead, a plan whose tail is not complete goes out in two beats:
//   plan(now) -> lower, submit the forward part -> commit the plan before -> plan_tail -> lower, submit the tail
//
// One thread, the engine's, except check(), queue_full() and queue_tokens().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/metrics/engine_stats.h"
#include "core/request/request.h"
#include "core/request/request_state.h"
#include "core/request/request_trace.h"
#include "core/schedule/iteration_plan.h"
#include "core/schedule/plan_limits.h"
#include "core/schedule/preemption.h"
#include "core/schedule/queue_load.h"
#include "core/schedule/scheduler_config.h"

namespace llmrt {

class BranchConstraint;

struct SchedulerOwners;
struct SchedulerFlows;

class Scheduler {
 public:
  explicit Scheduler(SchedulerConfig config);
  ~Scheduler();

  // What will never change about this request: context_length (prompt + max_tokens), never_fits (both numbers),
  // unsupported (penalties without penalty rows, more beams than the device tells candidates). Constants only;
  // thread-safe. Values inside the request are validate()'s business (request.h).
  Status check(const Request& request) const;

  // Takes the request (its n ids set and unused, prompt not empty, checked). When the queue is full it is REJECTED with
  // an event (kError, overloaded) for each branch instead. `request.sink` is not used.
  void add(Request request, TimeNs now);
  // Ends it with an event (kCancelled, or kDisconnected for `why`), whatever it is doing; a token in flight is dropped.
  // Unknown or ended: ignored. Each branch has its own id and ends alone, while the others go on; but with beam search
  // all end. `sent`: what of it has gone out, for its trace.
  void cancel(RequestId id, TimeNs now, const SentTimes& sent = {}, FinishReason why = FinishReason::kCancelled);
  // Its client can take no more (true), or again (false). From the next plan on no step computes a paused branch; what
  // it has computed stays where it is unless others need the room, which it gives up first. A token in flight is told.
  // Ignored for beams, whose answers come at the end, and for ids that are gone.
  void set_paused(RequestId id, bool is_paused);
  // STREAMING becomes FINISHED and the scheduler forgets the id. To be called once after each event with a finish;
  // ignored for ids that are gone already (cancelled, timed out and rejected ones are forgotten at once).
  void drained(RequestId id, const SentTimes& sent = {});

  // drained() of all that still stream: at the end, when no receiver will say so any more.
  void all_drained();

  // Told from now on of what the prefix cache has (core/kv/prefix_listener.h). Before the first request; it outlives
  // the scheduler. Nothing is told without a prefix cache.
  void listen(PrefixListener* listener);

  // Requests that wait or run (STREAMING ones do not count).
  bool has_work() const;

  // Ends what is past its deadline (events), then decides the next step. Null when nothing can run now: then either a
  // step is in flight whose commit will tell more, as where a row may have drafts, or has_work() is false. At most 2
  // plans may be uncommitted. The plan stays valid and unchanged until its commit. An empty plan is never returned.
  //
  // Where rows need a token in flight to find their logit changes, the plan's tail is not complete
  // (TailPlan::late_rows): plan_tail must be called once, after the commit of the plan before and before anything else.
  // While no plan is in flight, tails are complete.
  const IterationPlan* plan(TimeNs now);

  // The host beat: completes the tail of that plan, the newest one. A row whose changes are not ready, or are more than
  // the tail has room for, is parked: its sample is left out, and its position is computed again in a later step, which
  // gives it room first. All other rows go on. The tail may have no samples then.
  void plan_tail(const IterationPlan& plan);

  // The best time to plan the next step, counted from when `plan` begins on the device; 0 = at once. A request that
  // comes while a step runs waits for its rest and for the step that is planned already. Where rows of batch make steps
  // long for interactive and agent requests, the next step is left open until this one is nearly over.
  double plan_after_ms(const IterationPlan& plan, TimeNs now) const;

  // While no plan is in flight: blocks that the disk below the host tier lacks, as stores of a step that does nothing
  // else. saves_done() must follow when it is complete, before anything else is called. Empty: there are none now.
  std::span<const BlockMove> plan_saves();
  void saves_done();

  // In the order of the plans. One verdict for each PlanSample (logprobs are moved out of it). Verdicts of requests
  // that ended meanwhile are ignored; a preempted row's token is taken. `times`: what the step took on the device; the
  // cost model learns from it.
  void commit(const IterationPlan& plan, std::span<Verdict> verdicts, TimeNs now, const StepTimes& times = {});

  // The device is gone, or the books are broken (kInternal; then nothing is given back, and no plan may follow):
  // everything ends with `error` (kError), plans in flight are forgotten with it.
  void fail_all(const Error& error, TimeNs now);

  // Appends everything that happened since the last call, in order, and forgets it. Exactly one event with a finish
  // comes for each branch of a request that was added.
  void take_events(std::vector<TokenEvent>* out);

  // The same for preemptions.
  void take_preemptions(std::vector<Preemption>* out);

  // The same for the records of branches that are over: one for each branch that was added, when the scheduler forgets
  // it.
  void take_traces(std::vector<RequestTrace>* out);

  // Tokens of the requests that wait (new and preempted). Thread-safe.
  uint64_t queue_tokens() const;
  // Why the request may not join those that wait and those in the inbox: overloaded, with the numbers and when to try
  // again. Thread-safe.
  std::optional<Error> queue_full(const Request& request, const QueueLoad& inbox) const;

  // Gauges and counters of the scheduling part (plan_ms, device_ms and wall_ms are the engine's).
  const EngineStats& stats() const;
  const DraftStats& draft_stats() const;
  // Of the branches that run: the positions that they have computed and the prompt tokens that they have not, and what
  // a step of one token of each takes, and one row more of their mean length. O(rows).
  struct Load {
    uint64_t context_tokens = 0, prompt_tokens_left = 0;
    double decode_ms = 0, decode_more_ms = 0;  // 0 = not known yet
    double prefill_tokens_ms = 0, prefill_pair_ms = 0;
  };
  Load load() const;

  // free + cached + live = N in each pool, every block's references = the tables that hold it, slots and penalty slots
  // likewise, every state agrees with where the sequence is kept. An error says what differs. O(blocks).
  Status check_books() const;

  // For tests and reports.
  std::optional<RequestState> state_of(RequestId id) const;
  // Where a branch that has not ended stands in its constraint; null: it has none.
  BranchConstraint* constraint_of(RequestId id) const;
  // What the draft model keeps of a branch that asks for its drafts, and how many of the branch's positions are
  // computed. Null: it does not, or it has ended.
  struct DraftReader {
    DraftPlace* place = nullptr;
    uint32_t num_computed = 0;
  };
  DraftReader draft_reader(RequestId id);
  // While nothing is in flight: of a row that draws next when its mask is there; null: there is none.
  BranchConstraint* late_constraint() const;
  uint32_t num_free_blocks(uint32_t kv_group) const;
  const CostModel& cost_model() const;

 private:
  std::unique_ptr<SchedulerOwners> owners_;
  std::unique_ptr<SchedulerFlows> flows_;
};

}  // namespace llmrt
