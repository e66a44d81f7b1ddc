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
//
// One thread, the engine's, except check(), queue_full() and queue_tokens().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/kv/kv_space.h"
#include "core/metrics/engine_stats.h"
#include "core/request/request.h"
#include "core/request/request_state.h"
#include "core/request/request_trace.h"
#include "core/schedule/batching.h"
#include "core/schedule/class_shares.h"
#include "core/schedule/cost_model.h"
#include "core/schedule/exhaustion.h"
#include "core/schedule/iteration_plan.h"

namespace llmrt {

struct SchedulerConfig {
  uint32_t context_max = 0;
  uint32_t sequences_max = 256;
  uint32_t step_tokens_max = 2048;
  uint32_t sample_rows_max = 256;
  // Rows with token counts. Where there are fewer than sequences the branches of one request have half of them at most.
  uint32_t penalty_rows_max = 16;
  uint32_t chunk_tokens = 512;  // of all prompts together in a step in which others decode; but Impl::ends_prompt
  // In steps in which others decode, predicted: chunks are as large as this allows. 0 = they are chunk_tokens.
  double tpot_target_ms = 0;
  // The same of steps in which nothing decodes, or twice what one of a single token takes, if that is more; 0 = any.
  double idle_step_ms = 0;
  uint32_t reserve_output_tokens = 256;  // reserved at admission: min(max_tokens, this)
  bool learns_output = false;            // reserved instead, as soon as it is known: what 95 % of answers did not pass
  double watermark = 0.01;               // share of each pool that admission leaves free
  uint64_t queue_tokens_max = 1u << 20;  // tokens waiting in a lane; what comes on top is rejected
  // Of all lanes together: branches that wait, and what they hold (held_bytes). Whoever finds nobody waiting may.
  uint64_t queue_branches_max = 1u << 14, queue_bytes_max = 256u << 20;
  // Interactive and agent requests for which more is expected are refused, as far as that is known; 0 = any wait.
  double ttft_target_ms = 0;
  ClassShares class_shares;
  Batching batching = Batching::kContinuous;
  int64_t batch_wait_ms = 0;         // kDynamic: from the first that waits until a batch that is not full
  std::vector<KvPoolSize> kv_pools;  // by KV group; one for a plain model
  PrefixCacheKind prefix_cache = PrefixCacheKind::kOff;
  OnExhaustion on_exhaustion = OnExhaustion::kPreempt;
  uint32_t host_blocks = 0;  // of the host tier; 0 = none. One KV group only
  CostPrior cost_prior;
  Digest cache_identity = {};  // what keys and values depend on beside the request (prefix_cache.h)
  std::vector<int32_t> end_of_generation;
  Slo slo;  // what the statistics count as late
};

// The most that any plan of such a scheduler holds: sizes of the packed inputs.
struct PlanLimits {
  uint32_t rows_max, tokens_max, samples_max;
  uint64_t row_updates_max, payload_words_max, bias_entries_max;
  uint64_t block_copies_max, block_stores_max, block_loads_max;
};
PlanLimits plan_limits(const SchedulerConfig& config);

// Of requests that wait.
struct QueueLoad {
  uint64_t tokens = 0, branches = 0, bytes = 0;
};

// A running sequence that had to yield. Its tokens stay. What it had computed stays where it is until others take its
// blocks; then it is in the host tier (swapped), or is computed again later.
struct Preemption {
  RequestId request_id;
  RequestId wanted_by;       // the request whose next token needed a block when none was free (it may be its own)
  uint32_t computed_tokens;  // given up
  uint32_t num_blocks;       // given back, of all groups
  uint32_t times;            // that this request has yielded, this one included
  bool swapped = false;
  double swap_ms = 0, recompute_ms = 0;  // what the cost model says of either
};

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
  // Ends it with an event (kCancelled), whatever it is doing; a token in flight is dropped. Unknown or ended: ignored.
  // Each branch has its own id and ends alone, while the others go on; but with beam search all end.
  // `sent`: what of it has gone out, for its trace.
  void cancel(RequestId id, TimeNs now, const SentTimes& sent = {});
  // STREAMING becomes FINISHED and the scheduler forgets the id. To be called once after each event with a finish;
  // ignored for ids that are gone already (cancelled, timed out and rejected ones are forgotten at once).
  void drained(RequestId id, const SentTimes& sent = {});

  // drained() of all that still stream: at the end, when nobody will say so any more.
  void all_drained();

  // Requests that wait or run (STREAMING ones do not count).
  bool has_work() const;

  // Ends what is past its deadline (events), then decides the next step. Null when nothing can run now: then either a
  // step is in flight whose commit will tell more, or has_work() is false. At most 2 plans may be uncommitted. The plan
  // stays valid and unchanged until its commit. An empty plan is never returned.
  const IterationPlan* plan(TimeNs now);

  // So long after `plan` begins on the device the step behind it is best planned; 0 = at once. What comes while a step
  // runs waits for its rest and for the step that is planned already: where rows of batch make steps long for requests
  // that somebody waits for, the next one is left open until this one is nearly over.
  double plan_after_ms(const IterationPlan& plan, TimeNs now) const;

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

  // free + cached + live = N in each pool, every block's references = the tables that hold it, slots and penalty slots
  // likewise, every state agrees with where the sequence is kept. An error says what differs. O(blocks).
  Status check_books() const;

  // For tests and reports.
  std::optional<RequestState> state_of(RequestId id) const;
  uint32_t num_free_blocks(uint32_t kv_group) const;
  const CostModel& cost_model() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace llmrt
