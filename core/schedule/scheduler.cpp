#include "core/schedule/scheduler.h"

#include "core/schedule/audit.h"
#include "core/schedule/scheduler_parts.h"

namespace llmrt {

Scheduler::Scheduler(SchedulerConfig config)
    : owners_(std::make_unique<SchedulerOwners>(std::move(config))),
      flows_(std::make_unique<SchedulerFlows>(*owners_)) {}
Scheduler::~Scheduler() = default;

Status Scheduler::check(const Request& request) const {
  return flows_->arrivals.check(request);
}

void Scheduler::listen(PrefixListener* listener) {
  if (owners_->config.prefix_cache != PrefixCacheKind::kOff) owners_->kv.listen(listener);
}

void Scheduler::add(Request request, TimeNs now) {
  flows_->arrivals.add(std::move(request), now);
}

void Scheduler::cancel(RequestId id, TimeNs now, const SentTimes& sent, FinishReason why) {
  Sequence* sequence = owners_->branches.find(id);
  if (sequence == nullptr) return;
  if (sequence->state() == RequestState::kStreaming) {  // its end has been told already
    flows_->exits.let_go(*sequence, RequestState::kCancelled, sent);
    return;
  }
  sequence->record.times.sent = sent;
  flows_->exits.end_all(*sequence, RequestState::kCancelled, {}, why, now);
}

void Scheduler::set_paused(RequestId id, bool is_paused) {
  Sequence* sequence = owners_->branches.find(id);
  if (sequence != nullptr && !sequence->request.beam) sequence->is_paused = is_paused;
}

void Scheduler::drained(RequestId id, const SentTimes& sent) {
  Sequence* sequence = owners_->branches.find(id);
  if (sequence == nullptr || sequence->state() != RequestState::kStreaming) return;
  flows_->exits.let_go(*sequence, RequestState::kFinished, sent);
}

void Scheduler::all_drained() {
  for (const RequestId id : owners_->branches.streaming()) drained(id);
}

bool Scheduler::has_work() const {
  return owners_->waiting.size() > 0 || !owners_->running.is_empty();
}

const IterationPlan* Scheduler::plan(TimeNs now) {
  PlanWriter& plans = owners_->plans;
  LLMRT_CHECK(plans.may_write(), "a third plan before the first's commit");
  owners_->kv.poll_disk();
  flows_->exits.expire(now);
  if (plans.has_in_flight() && flows_->drafts.awaits_tokens()) {
    flows_->drafts.note_awaited();
    return nullptr;
  }
  owners_->batches.make(owners_->waiting, now);
  flows_->steps.fill(plans.num_plans() + 1, plans.has_in_flight(), now);
  if (owners_->draft.is_empty()) {
    if (!plans.has_in_flight() && !has_work()) owners_->pace.rest();
    return nullptr;
  }
  const IterationPlan* plan = plans.write(owners_->batches.number());
  owners_->journal.note_plan(*plan, owners_->running.rows(), owners_->config.kv_pools, now);
  return plan;
}

std::span<const BlockMove> Scheduler::plan_saves() {
  KvSpace& kv = owners_->kv;
  if (owners_->plans.has_in_flight() || !kv.has_saves()) return {};
  kv.save(kIdleSavesMax, /*all=*/true);
  return kv.stores();
}

void Scheduler::saves_done() {
  owners_->journal.note_saves(owners_->kv.stores().size());
  owners_->kv.forget_moves();
  owners_->kv.step_is_complete();
}

void Scheduler::plan_tail(const IterationPlan& plan) {
  owners_->journal.note_parked(owners_->plans.write_tail(plan));
}

double Scheduler::plan_after_ms(const IterationPlan& plan, TimeNs now) const {
  return owners_->pace.plan_after_ms(plan.work, owners_->running.has_patient_rows(), now);
}

void Scheduler::commit(const IterationPlan& plan, std::span<Verdict> verdicts, TimeNs now, const StepTimes& times) {
  LLMRT_CHECK(verdicts.size() == plan.samples.size(), "a verdict for each sample");
  owners_->plans.note_commit(plan);
  owners_->kv.step_is_complete();
  flows_->commits.take(plan, verdicts, now);
  owners_->journal.note_commit();
  flows_->drafts.note_commit(plan, times, now);
  owners_->pace.observe(plan.work, times, owners_->waiting.size() > 0, now);
}

void Scheduler::fail_all(const Error& error, TimeNs now) {
  flows_->exits.fail_all(error, now);
  owners_->plans.forget_in_flight();
}

void Scheduler::take_events(std::vector<TokenEvent>* out) {
  owners_->journal.take_events(out);
}

void Scheduler::take_preemptions(std::vector<Preemption>* out) {
  owners_->journal.take_preemptions(out);
}

void Scheduler::take_traces(std::vector<RequestTrace>* out) {
  owners_->journal.take_traces(out);
}

uint64_t Scheduler::queue_tokens() const {
  return owners_->waiting.tokens();
}

std::optional<Error> Scheduler::queue_full(const Request& request, const QueueLoad& inbox) const {
  return flows_->limits.queue_full(request, inbox);
}

const EngineStats& Scheduler::stats() const {
  return owners_->journal.stats({.num_running = owners_->running.size(),
                                 .num_waiting = owners_->waiting.size(),
                                 .num_streaming = owners_->branches.num_streaming(),
                                 .queue_tokens = queue_tokens(),
                                 .drafts = flows_->drafts.stats()},
                                owners_->kv);
}

const DraftStats& Scheduler::draft_stats() const {
  return flows_->drafts.stats();
}

Scheduler::Load Scheduler::load() const {
  Load load;
  uint64_t num_rows = 0;
  for (const Sequence* row : owners_->running.rows()) {
    ++num_rows;
    load.context_tokens += row->progress.computed;
    if (row->gap() > 1) load.prompt_tokens_left += row->gap();
  }
  const CostModel& cost = owners_->pace.cost();
  load.prefill_tokens_ms = cost.prefill_rate(owners_->config.step_tokens_max);
  load.prefill_pair_ms = cost.pair_ms();
  if (!cost.knows_steps()) return load;
  StepWork work{.tokens = num_rows, .decode_keys = load.context_tokens + num_rows};
  if (num_rows > 0) load.decode_ms = cost.step_ms(work);
  work.tokens += 1;
  work.decode_keys += num_rows > 0 ? load.context_tokens / num_rows + 1 : 1;
  load.decode_more_ms = cost.step_ms(work);
  return load;
}

Status Scheduler::check_books() const {
  const SchedulerOwners& o = *owners_;
  return audit(o.kv, o.branches, o.waiting, o.running, o.batches, o.plans);
}

std::optional<RequestState> Scheduler::state_of(RequestId id) const {
  const Sequence* sequence = owners_->branches.find(id);
  if (sequence == nullptr) return std::nullopt;
  return sequence->state();
}

BranchConstraint* Scheduler::constraint_of(RequestId id) const {
  const Sequence* sequence = owners_->branches.find(id);
  return sequence == nullptr ? nullptr : sequence->constraint.get();
}

Scheduler::DraftReader Scheduler::draft_reader(RequestId id) {
  Sequence* const sequence = owners_->branches.find(id);
  ModelDrafter* const drafter = owners_->config.model_drafter;
  if (sequence == nullptr || drafter == nullptr || !sequence->drafts.by_model) return {};
  return {draft_place(drafter, *sequence), sequence->progress.computed};
}

BranchConstraint* Scheduler::late_constraint() const {
  for (const Sequence* row : owners_->running.rows())
    if (row->constraint && !row->is_paused && row->gap() == 1 && !row->constraint->is_ready())
      return row->constraint.get();
  return nullptr;
}

uint32_t Scheduler::num_free_blocks(uint32_t kv_group) const {
  return owners_->kv.num_free(kv_group);
}

const CostModel& Scheduler::cost_model() const {
  return owners_->pace.cost();
}

}  // namespace llmrt
