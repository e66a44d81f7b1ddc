#include "core/schedule/scheduler.h"

#include <algorithm>
#include <cmath>

#include "core/schedule/scheduler_impl.h"

namespace llmrt {

Scheduler::Impl::Impl(SchedulerConfig from)
    : config(std::move(from)),
      kv(config.kv_pools, cache_kind(config), host_tier_size(config)),
      prefixes(config, kv),
      fairness(config.class_shares, config.step_tokens_max),
      pace(config),
      limits(config, waiting, fairness, pace),
      batches(config),
      running(config.sequences_max, config.penalty_rows_max),
      reservations(config, kv),
      draft(config),
      plans(config, kv, prefixes, running),
      journal(config.slo),
      start_order(config, kv, prefixes, branches, waiting, running, batches, journal) {
  taking.reserve(config.sequences_max);
  behind.reserve(config.sequences_max);
}

Scheduler::Scheduler(SchedulerConfig config) : impl_(std::make_unique<Impl>(std::move(config))) {}
Scheduler::~Scheduler() = default;

Status Scheduler::check(const Request& request) const {
  const SchedulerConfig& config = impl_->config;
  const uint64_t num_prompt = request.prompt.size();
  if (num_prompt + request.max_tokens > config.context_max) {
    return make_error(ErrorCode::kContextLength, "context length: expected at most {} tokens, found {} prompt + {} new",
                      config.context_max, num_prompt, request.max_tokens);
  }
  if (request.sampling.has_penalties() && config.penalty_rows_max == 0) {
    return make_error(ErrorCode::kUnsupported, "penalties: this engine keeps no token counts (penalty rows: 0)");
  }
  if (request.beam && request.n + impl_->ends_of(request).size() > kBeamCandidatesMax) {
    return make_error(ErrorCode::kUnsupported, "use_beam_search: expected at most {} beams, found {}",
                      kBeamCandidatesMax - impl_->ends_of(request).size(), request.n);
  }
  // What was learnt since changes when it starts, not whether it ever can.
  const uint32_t output = reserves_all(config.on_exhaustion)
                              ? request.max_tokens
                              : std::min(request.max_tokens, config.reserve_output_tokens);
  const uint32_t positions =
      static_cast<uint32_t>(std::min(num_prompt + request.begun.size() + output, num_prompt + request.max_tokens - 1));
  for (uint32_t g = 0; g < impl_->kv.num_groups(); ++g) {
    const uint32_t blocks = impl_->kv.blocks_for(g, positions);
    if (blocks <= impl_->kv.num_blocks(g)) continue;
    return make_error(
        ErrorCode::kNeverFits,
        "never fits: {} prompt tokens with an expected output of {} need {} KV blocks of {}, the pool has {}",
        num_prompt, output, blocks, config.kv_pools[g].block_tokens, impl_->kv.num_blocks(g));
  }
  return {};
}

void Scheduler::add(Request request, TimeNs now) {
  impl_->add(std::move(request), now);
}

void Scheduler::cancel(RequestId id, TimeNs now, const SentTimes& sent) {
  Sequence* sequence = impl_->branches.find(id);
  if (sequence == nullptr) return;
  if (sequence->state() == RequestState::kStreaming) {  // its end has been told already
    sequence->move_to(RequestState::kCancelled);
    impl_->forget(*sequence, sent);
    return;
  }
  sequence->record.times.sent = sent;
  impl_->end_all(*sequence, RequestState::kCancelled, {}, FinishReason::kCancelled, now);
}

void Scheduler::drained(RequestId id, const SentTimes& sent) {
  Sequence* sequence = impl_->branches.find(id);
  if (sequence == nullptr || sequence->state() != RequestState::kStreaming) return;
  sequence->move_to(RequestState::kFinished);
  impl_->forget(*sequence, sent);
}

void Scheduler::all_drained() {
  for (const RequestId id : impl_->branches.streaming()) drained(id);
}

bool Scheduler::has_work() const {
  return impl_->waiting.size() > 0 || !impl_->running.is_empty();
}

const IterationPlan* Scheduler::plan(TimeNs now) {
  LLMRT_CHECK(impl_->plans.may_write(), "a third plan before the first's commit");
  impl_->expire(now);
  impl_->batches.make(impl_->waiting, now);
  impl_->draft.begin();
  impl_->admits = true;
  impl_->is_closed = {};
  impl_->leaves_out =
      impl_->left_out_in != impl_->plans.num_plans() && impl_->awaits_long_prompt();  // not twice in a row
  impl_->take_units(now);
  impl_->take_prompts(now);
  if (impl_->leaves_out && !impl_->draft.is_long()) impl_->take_left_out(now);
  impl_->yield_idle_beams(now);
  if (impl_->draft.is_empty()) {
    if (!impl_->plans.has_in_flight() && !has_work()) impl_->pace.rest();
    return nullptr;
  }
  const IterationPlan* plan = impl_->plans.write(impl_->batches.number());
  if (impl_->leaves_out) impl_->left_out_in = impl_->plans.num_plans();
  impl_->journal.note_plan(*plan, impl_->running.rows(), impl_->config.kv_pools, now);
  return plan;
}

double Scheduler::plan_after_ms(const IterationPlan& plan, TimeNs now) const {
  return impl_->pace.plan_after_ms(plan.work, impl_->running.has_patient_rows(), now);
}

void Scheduler::commit(const IterationPlan& plan, std::span<Verdict> verdicts, TimeNs now, const StepTimes& times) {
  impl_->plans.note_commit(plan);
  LLMRT_CHECK(verdicts.size() == plan.samples.size(), "a verdict for each sample");
  for (const PlanRow& row : plan.rows) impl_->commit_row(plan, row, verdicts, now);
  impl_->journal.note_commit();
  impl_->pace.observe(plan.work, times, impl_->waiting.size() > 0, now);
}

void Scheduler::fail_all(const Error& error, TimeNs now) {
  impl_->quarantined = error.code == ErrorCode::kInternal;
  std::vector<Sequence*> all(impl_->running.rows().begin(), impl_->running.rows().end());
  for (const auto& queue : impl_->waiting.queues())
    for (const auto& [place, sequence] : queue) all.push_back(sequence);
  for (Sequence* sequence : all) {
    const bool never_ran = sequence->state() == RequestState::kQueued;
    impl_->end(*sequence, never_ran ? RequestState::kRejected : RequestState::kStreaming, {.error = error},
               FinishReason::kError, now);
  }
  impl_->plans.forget_in_flight();
}

void Scheduler::take_events(std::vector<TokenEvent>* out) {
  impl_->journal.take_events(out);
}

void Scheduler::take_preemptions(std::vector<Preemption>* out) {
  impl_->journal.take_preemptions(out);
}

void Scheduler::take_traces(std::vector<RequestTrace>* out) {
  impl_->journal.take_traces(out);
}

uint64_t Scheduler::queue_tokens() const {
  return impl_->waiting.tokens();
}

const EngineStats& Scheduler::stats() const {
  return impl_->journal.stats({.num_running = impl_->running.size(),
                               .num_waiting = impl_->waiting.size(),
                               .num_streaming = impl_->branches.num_streaming(),
                               .queue_tokens = queue_tokens()},
                              impl_->kv);
}

Status Scheduler::check_books() const {
  return impl_->check_books();
}

std::optional<RequestState> Scheduler::state_of(RequestId id) const {
  const Sequence* sequence = impl_->branches.find(id);
  if (sequence == nullptr) return std::nullopt;
  return sequence->state();
}

std::optional<Error> Scheduler::queue_full(const Request& request, const QueueLoad& inbox) const {
  return impl_->limits.queue_full(request, inbox);
}

const CostModel& Scheduler::cost_model() const {
  return impl_->pace.cost();
}

uint32_t Scheduler::num_free_blocks(uint32_t kv_group) const {
  return impl_->kv.num_free(kv_group);
}

}  // namespace llmrt
