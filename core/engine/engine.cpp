#include "core/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "core/adapter/adapter_image.h"
#include "core/base/checked_math.h"
#include "core/engine/adapter_host.h"
#include "core/engine/cache_identity.h"
#include "core/engine/disk_setup.h"
#include "core/engine/disk_source.h"
#include "core/engine/draft_model.h"
#include "core/engine/flights.h"
#include "core/engine/inbox.h"
#include "core/engine/lower.h"
#include "core/engine/pool_sizing.h"
#include "core/engine/warm_up.h"
#include "core/request/branch_constraint.h"
#include "core/schedule/scheduler.h"
#include "core/schedule/step_sizes.h"
#include "core/speculate/ngram_drafter.h"
#include "core/stop/stop_matcher.h"
#include "core/text/tokenizer.h"

namespace llmrt {
namespace {

constexpr std::chrono::milliseconds kIdleSleep{50};  // deadlines of waiting requests are looked at this often
constexpr std::chrono::milliseconds kBatchSleep{1};  // and with dynamic batching whether the next batch begins
// The tail of a step waits for masks for this share of the step's predicted time, so the device does not wait.
constexpr double kMaskWaitShare = 0.8;
constexpr double kMaskWaitMsMin = 0.2;
constexpr const char* kShuttingDown = "the server is shutting down";

// What the engine keeps of a branch beside the scheduler: where its events go and its stop state.
struct Live {
  std::shared_ptr<EventSink> sink;
  StopMatcher matcher;
  std::shared_ptr<const Policy> policy;
  std::unique_ptr<PolicyFilter> filter;  // of the policy
  size_t num_alternatives;               // log-probabilities wanted beside each token's own
  bool has_logprobs;                     // wanted at all
  bool is_processed;                     // those of drawn tokens
  bool tells_draws;
  bool is_beam;                 // whose tokens are known only at the end
  bool is_constrained;          // by a grammar
  bool filter_stopped = false;  // in what had begun: the next token ends the answer
};

Live live_of(const Request& request, const std::shared_ptr<const StopRules>& stop_rules) {
  const SamplingParams& sampling = request.sampling;
  const bool is_beam = request.beam.has_value();
  return {request.sink,
          StopMatcher(stop_rules),
          request.policy,
          request.policy ? request.policy->begin() : nullptr,
          is_beam ? kBeamCandidatesMax : static_cast<uint32_t>(std::max(0, sampling.logprobs)),
          is_beam || sampling.logprobs >= 0,
          sampling.processed_logprobs,
          sampling.tell_draws,
          is_beam,
          request.constraint != nullptr};
}

QueueLoad load_of(const Request& request) {
  return {request.prompt.size(), request.n, held_bytes(request)};
}

Error row_error(uint32_t flags) {
  if (flags & kResultNotFinite)
    return make_error(ErrorCode::kNotFinite, "the model's logits hold inf or NaN at this position");
  return make_error(ErrorCode::kEmptySupport, "no token is left to draw: logit bias and bans removed all of them");
}

// The first answers that end are short ones.
constexpr uint64_t kAnswersKnown = 16;
double mean_answer(const EngineStats& stats) {
  const uint64_t count = stats.answer_tokens_hist.count();
  return count < kAnswersKnown ? 0 : stats.answer_tokens_hist.sum() / static_cast<double>(count);
}
// By means, as prompts are counted before their answers.
double prompts_each(const EngineStats& stats) {
  const double answer = mean_answer(stats);
  if (answer == 0) return 0;
  const uint64_t computed = stats.prompt_tokens - std::min(stats.prompt_tokens, stats.prefix_hits);
  return static_cast<double>(computed) / static_cast<double>(stats.prompt_tokens_hist.count()) / answer;
}

// A log-probability is at most 0, but for rounding. Whatever else a device gives is wrong, and so may be all that it
// computed for the row.
std::optional<Error> logprob_error(TokenId token, float logprob) {
  constexpr float kRounding = 0.01f;
  if (logprob <= kRounding) return std::nullopt;
  return make_error(ErrorCode::kInternal, "the device's log-probability of token {}: expected at most 0, found {}",
                    token, logprob);
}
std::optional<Error> logprob_error(const SampleResult& result, float logprob, const LogprobRow& alternatives) {
  std::optional<Error> error = logprob_error(result.token, logprob);
  for (const LogprobRow::Entry& entry : alternatives.entries)
    if (!error && entry.token >= 0) error = logprob_error(entry.token, entry.logprob);
  return error;
}

}  // namespace

struct Engine::Impl {
  EngineConfig config;
  std::shared_ptr<const Model> model;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<DiskTier> disk;  // null: none; reads and writes the backend's memory
  const Clock* clock;
  MemoryPlan memory_plan;
  Digest cache_identity = {};  // of the blocks of all requests
  std::unique_ptr<Lowering> lowering;
  std::unique_ptr<AdapterHost> adapters;  // null: no slots for them
  std::unique_ptr<DraftModel> draft;      // null: there is none; outlives the scheduler, whose branches hold its places
  std::vector<std::shared_ptr<PrefixListener>> listeners;  // outlive the scheduler
  std::unique_ptr<Scheduler> scheduler;
  const std::shared_ptr<const DraftSource> ngram_drafts = std::make_shared<const NgramDrafts>();

  Inbox inbox;
  std::vector<InboxMessage> messages;
  std::shared_ptr<std::atomic<RequestId>> last_id = std::make_shared<std::atomic<RequestId>>(0);
  // Sums over requests that the scheduler has not seen yet.
  std::atomic<uint64_t> inbox_tokens{0}, inbox_branches{0}, inbox_bytes{0};
  std::atomic<uint64_t> num_refused{0};  // at the door, for a full queue

  std::optional<Flights> flights;
  std::unordered_map<RequestId, Live> live;
  std::vector<Verdict> verdicts;
  std::vector<TokenEvent> events;
  std::vector<Preemption> preemptions;
  std::vector<RequestTrace> traces;
  std::shared_ptr<Log> log = silent_log();
  std::shared_ptr<TraceSink> trace_sink;
  SaturationMonitor monitor;
  TimeNs last_step_end_ns = 0;
  // The step that the device runs, for other threads; 0 = none.
  std::atomic<TimeNs> step_begin_ns{0}, step_limit_ns{0};
  std::atomic<uint64_t> step_number{0};

  mutable std::mutex stats_mutex;
  EngineStats shared_stats;  // a copy for other threads, renewed every tick
  EngineLoad shared_load;    // likewise, once somebody has asked for it
  mutable std::atomic<bool> load_is_asked{false};
  std::optional<Error> lost;  // why no step can run any more
  double plan_ms = 0, device_ms = 0, wall_ms = 0, mask_wait_ms = 0;
  std::vector<float> hidden;     // of the last step's samples
  bool draft_failed = false;     // that has been told
  uint32_t prepared_tokens = 0;  // the largest size of a step that prepare_next has seen to

  size_t flights_max() const { return config.overlap ? Flights::kMax : 1; }

  void count_inbox(const QueueLoad& load, int sign) {  // any thread
    inbox_tokens += static_cast<uint64_t>(sign) * load.tokens;
    inbox_branches += static_cast<uint64_t>(sign) * load.branches;
    inbox_bytes += static_cast<uint64_t>(sign) * load.bytes;
  }
  Status check_allowed(const Request& request) const;  // any thread
  void settle_mode(Request* request) const;            // any thread
  void take_messages(bool last = false);
  TimeNs hang_limit_ns(const IterationPlan& plan) const;
  void tell_step(const Flight* flight);  // null: none
  void tell_drafting();
  double model_ms() const;  // that the draft model has taken
  Status check_draft();
  Status hand_hidden(const IterationPlan& plan);
  Status launch(const IterationPlan& plan);
  Status launch_tail(const IterationPlan& plan);
  Status land();
  void judge(const IterationPlan& plan, const StepOutput& output);
  Verdict judge_row(const PlanRow& row, const PlanSample& sample, const SampleResult& result,
                    const LogprobRow* alternatives);
  StopVerdict advance(Live& branch, TokenId token);
  void advance_constraint(BranchConstraint* constraint, Verdict* verdict);
  void wait_for_masks(const IterationPlan& plan);
  void wait_for_late_mask();
  void cut_end(Live& beam, std::span<TokenEvent> answer);
  void deliver();
  void hand_over_traces();
  void publish();
  void log_preemptions();
  Error lose(Error error);
  std::optional<Error> lost_for_good();  // any thread
  bool wait_to_plan(TimeNs until);
  Result<bool> tick(TimeNs until);
  Result<bool> save_blocks();
  Result<bool> prepare_next();
};

// ---- the circle ----------------------------------------------------------------------------------------------------

// Until it is time to plan behind the step that runs: true; or `until`, if that comes first: false.
bool Engine::Impl::wait_to_plan(TimeNs until) {
  if (flights->size() != 1) return true;
  const TimeNs now = clock->now_ns();
  const double after_ms = scheduler->plan_after_ms(*flights->oldest().plan, now);
  const TimeNs then = flights->oldest().begin_ns + static_cast<TimeNs>(after_ms * 1e6);
  if (now >= then) return true;
  clock->sleep_until(std::min(then, until));
  return then <= until;
}

// In beats: plan and launch the forward part of a step; take the results of the step before; with them complete its
// tail, where that had to wait, and launch it; deliver.
Result<bool> Engine::Impl::tick(TimeNs until) {
  if (!wait_to_plan(until)) return true;
  if (config.disk.source)
    for (uint32_t i = config.disk.source->next_jobs(); disk && i > 0; --i) disk->work();
  take_messages();
  if (flights->is_empty()) wait_for_late_mask();
  const TimeNs begin_ns = clock->now_ns();
  Result<bool> adapted = adapters ? adapters->write(flights->is_empty(), begin_ns) : Result<bool>(false);
  if (!adapted) return lose(adapted.error());
  const double drafted_ms = model_ms();
  if (draft && flights->is_empty()) tell_drafting();
  const IterationPlan* plan = flights->size() < flights_max() ? scheduler->plan(begin_ns) : nullptr;
  if (draft && flights->is_empty()) tell_step(nullptr);
  if (Status status = check_draft(); !status) return lose(status.error());
  if (plan) {
    if (Status status = launch(*plan); !status) return lose(status.error());
    log_preemptions();
    plan_ms += std::max(0.0, ms_between(begin_ns, clock->now_ns()) - (model_ms() - drafted_ms));
  }
  // One step ahead: take a result only when nothing more can be launched.
  const bool lands = !flights->is_empty() && (flights->size() == flights_max() || !plan);
  if (lands) {
    if (Status status = land(); !status) return lose(status.error());
  } else if (!plan) {
    last_step_end_ns = 0;
  }
  if (plan && !plan->is_complete())
    if (Status status = launch_tail(*plan); !status) return lose(status.error());
  scheduler->take_events(&events);
  Result<bool> saved = plan || lands ? Result<bool>(false) : save_blocks();
  if (!saved) return lose(saved.error());
  const bool brings_adapters = *adapted || (adapters && adapters->is_asked());
  const bool worked = plan || lands || !flights->is_empty() || !events.empty() || *saved || brings_adapters;
  deliver();
  hand_over_traces();
  publish();
  return worked;
}

// While nothing runs: what the disk lacks of what has run.
Result<bool> Engine::Impl::save_blocks() {
  if (!disk || !flights->is_empty()) return false;
  ForwardInputs moves;
  for (const BlockMove& move : scheduler->plan_saves())
    moves.block_stores.push_back({move.source, move.target, move.num_tokens, move.kv_group});
  if (moves.block_stores.empty()) return false;
  Result<StepOutput> output = run_moves(moves, lowering->memory_list(), backend.get());
  if (!output) return output.error();
  scheduler->saves_done();
  return true;
}

Result<bool> Engine::Impl::prepare_next() {
  if (backend->caps().is_cpu || prepared_tokens == config.step_tokens_max || !flights->is_empty()) return false;
  const bool samples = prepared_tokens < config.sample_rows_max;
  prepared_tokens = std::min(step_size_from(prepared_tokens + 1), config.step_tokens_max);
  // Batch-invariant steps have no prompt items, nor have the smallest; the largest always have some.
  const bool decodes = config.batch_invariant || prepared_tokens <= config.sequences_max * kDecodeRowTokens;
  const bool prompts = !config.batch_invariant && prepared_tokens > kDecodeRowTokens;
  const bool invariant = config.batch_invariant;
  // Where requests have no drafts by default, and prompts do not make runs, the first step with runs compiles its list.
  const bool runs =
      prepared_tokens > 1 && (invariant || config.ngram_drafts) && lowering->decode_item_tokens(invariant).most > 1;
  Status status;
  for (const Adapted adapted : lowering->adapted_kinds()) {
    for (const bool decode_only : {true, false})
      for (const bool has_runs : {false, true})
        if (status && (decode_only ? decodes : prompts) && (!has_runs || runs))
          status = backend->prepare(lowering->forward_list(prepared_tokens, invariant, decode_only, adapted, has_runs));
    if (status && samples) status = backend->prepare(lowering->sample_list(prepared_tokens, invariant, adapted));
  }
  if (status) return true;
  prepared_tokens = config.step_tokens_max;  // the others are prepared when they are needed, or fail then
  if (status.error().code == ErrorCode::kDeviceLost) return lose(status.error());
  log->warn("steps are no longer prepared ahead: {}", status.error().message);
  return false;
}

void Engine::Impl::take_messages(bool last) {
  inbox.take(&messages, last);
  for (InboxMessage& message : messages) {
    if (auto* request = std::get_if<Request>(&message)) {
      std::span<const TokenId> ends;
      if (tokenizer) ends = tokenizer->end_of_generation_ids();
      const auto stop_rules =
          std::make_shared<const StopRules>(request->stop, request->min_tokens, request->max_tokens, ends);
      for (uint32_t branch = 0; branch < request->n; ++branch) {
        Live& added = live.emplace(request->id + branch, live_of(*request, stop_rules)).first->second;
        for (const TokenId token : request->begun) advance(added, token);  // the answer went on behind each
      }
      count_inbox(load_of(*request), -1);
      scheduler->add(std::move(*request), clock->now_ns());
    } else if (auto* cancelled = std::get_if<CancelMessage>(&message)) {
      scheduler->cancel(cancelled->id, clock->now_ns(), cancelled->sent, cancelled->why);
    } else if (const auto* paused = std::get_if<PauseMessage>(&message)) {
      scheduler->set_paused(paused->id, paused->is_paused);
    } else if (auto* listen = std::get_if<ListenMessage>(&message)) {
      listeners.push_back(std::move(listen->listener));
      scheduler->listen(listeners.back().get());
    } else {
      const auto& drained = std::get<DrainedMessage>(message);
      scheduler->drained(drained.id, drained.sent);
    }
  }
}

TimeNs Engine::Impl::hang_limit_ns(const IterationPlan& plan) const {
  constexpr double kTimesExpected = 10;
  double limit_s = config.hang_s;
  if (backend->caps().is_cpu) {
    const CostModel& cost = scheduler->cost_model();
    limit_s = cost.knows_steps() ? std::max(limit_s, kTimesExpected * cost.step_ms(plan.work) * 1e-3)
                                 : kTimesExpected * limit_s;
  }
  return config.hang_s > 0 ? static_cast<TimeNs>(std::min(limit_s, 1e9) * 1e9) : kNever;
}

void Engine::Impl::tell_step(const Flight* flight) {
  step_begin_ns = 0;
  if (flight == nullptr) return;
  step_number = flight->plan->step;
  step_limit_ns = flight->limit_ns;
  step_begin_ns = flight->begin_ns;
}

// The draft model may hang as a step may.
void Engine::Impl::tell_drafting() {
  const double limit_s = config.hang_s * (backend->caps().is_cpu ? 10 : 1);
  step_limit_ns = limit_s > 0 ? static_cast<TimeNs>(std::min(limit_s, 1e9) * 1e9) : kNever;
  step_begin_ns = clock->now_ns();
}

double Engine::Impl::model_ms() const {
  if (!draft) return 0;
  const DraftStats& drafts = scheduler->draft_stats();
  return drafts.model_ms + drafts.model_read_ms;
}

// A lost device is everybody's; without drafts all goes on.
Status Engine::Impl::check_draft() {
  if (!draft || !draft->failure() || draft_failed) return {};
  if (draft->failure()->code == ErrorCode::kDeviceLost) return *draft->failure();
  draft_failed = true;
  const char* code = error_code_name(draft->failure()->code);
  log->event(LogLevel::kError, {{"code", code}}, "no drafts of a model any more: {}", draft->failure()->message);
  return {};
}

// To a layer of the model that drafts, what its next drafts go by. Those of a step behind which another one runs are
// gone.
Status Engine::Impl::hand_hidden(const IterationPlan& plan) {
  if (!draft || !draft->reads_hidden() || !flights->is_empty()) return {};
  hidden.clear();
  const size_t width = model->config.width;
  for (const PlanRow& row : plan.rows) {
    if (row.num_samples == 0) continue;
    const Scheduler::DraftReader reader = scheduler->draft_reader(row.request_id);
    if (reader.place == nullptr) continue;
    for (uint32_t i = row.sample_first; i < row.sample_first + row.num_samples; ++i) {
      const uint32_t position = row.start + plan.samples[i].token_offset;
      if (position >= reader.num_computed) break;  // behind a draft that was wrong
      if (hidden.empty())
        if (Status status = read_final_hidden(*flights->landed_sample(), backend.get(), &hidden); !status)
          return status;
      draft->put_hidden(reader.place, position, std::span(hidden).subspan(i * width, width));
    }
  }
  return {};
}

Status Engine::Impl::launch(const IterationPlan& plan) {
  const Flight flight{&plan, clock->now_ns(), hang_limit_ns(plan)};
  if (flights->is_empty()) tell_step(&flight);  // handing it over may hang, too
  if (Status status = flights->launch(flight); !status) return status;
  flights->newest().begin_ns = clock->now_ns();
  return {};
}

Status Engine::Impl::launch_tail(const IterationPlan& plan) {
  wait_for_masks(plan);
  const TimeNs begin_ns = clock->now_ns();
  scheduler->plan_tail(plan);
  if (Status status = flights->launch_tail(); !status) return status;
  plan_ms += ms_between(begin_ns, clock->now_ns());
  return {};
}

// While the step's forward part runs. A row whose mask is still not there is parked alone.
void Engine::Impl::wait_for_masks(const IterationPlan& plan) {
  const CostModel& cost = scheduler->cost_model();
  const double step_ms = cost.knows_steps() ? cost.step_ms(plan.work) : 0;
  const TimeNs begin_ns = clock->now_ns();
  const auto wait_us = static_cast<int64_t>(1e3 * std::max(kMaskWaitMsMin, kMaskWaitShare * step_ms));
  bool has_waited = false;
  for (const uint32_t row : plan.late_rows) {
    BranchConstraint* constraint = scheduler->constraint_of(plan.rows[row].request_id);
    if (constraint == nullptr || constraint->is_ready()) continue;
    has_waited = true;
    const int64_t left_us = wait_us - (clock->now_ns() - begin_ns) / 1000;
    if (left_us > 0) constraint->wait(std::chrono::microseconds(left_us));
  }
  if (has_waited) mask_wait_ms += ms_between(begin_ns, clock->now_ns());
}

// Nothing runs: a row whose mask will be there in a moment is not left out of the step.
void Engine::Impl::wait_for_late_mask() {
  BranchConstraint* late = scheduler->late_constraint();
  if (late == nullptr) return;
  const TimeNs begin_ns = clock->now_ns();
  late->wait(std::chrono::microseconds(static_cast<int64_t>(1e3 * kMaskWaitMsMin)));
  mask_wait_ms += ms_between(begin_ns, clock->now_ns());
}

Status Engine::Impl::land() {
  const IterationPlan& plan = *flights->oldest().plan;
  Result<StepOutput> output = flights->land();
  if (!output) return output.error();
  const TimeNs now = clock->now_ns();
  const StepTimes times{output->memory_ms, output->forward_ms + output->sample_ms};
  device_ms += times.memory_ms + times.step_ms;
  if (last_step_end_ns) wall_ms += ms_between(last_step_end_ns, now);
  last_step_end_ns = now;
  if (!flights->is_empty()) flights->oldest().begin_ns = now;
  tell_step(flights->is_empty() ? nullptr : &flights->oldest());
  judge(plan, *output);
  scheduler->commit(plan, verdicts, now, times);
  if (Status status = hand_hidden(plan); !status) return status;
  const bool audited = config.audit_steps > 0 && scheduler->stats().num_steps % config.audit_steps == 0;
  if (Status status = audited ? scheduler->check_books() : Status(); !status) return status;
  if (Status status = audited && draft ? draft->check() : Status(); !status) return status;
  return audited && adapters ? adapters->check() : Status();
}

void Engine::Impl::judge(const IterationPlan& plan, const StepOutput& output) {
  verdicts.clear();
  verdicts.resize(plan.samples.size());
  for (const PlanRow& row : plan.rows) {
    for (uint32_t i = row.sample_first; i < row.sample_first + row.num_samples; ++i) {
      const LogprobRow* alternatives = output.logprobs.empty() ? nullptr : &output.logprobs[i];
      verdicts[i] = judge_row(row, plan.samples[i], output.results[i], alternatives);
      if (ends_run(plan.samples[i], verdicts[i])) break;
    }
  }
}

Verdict Engine::Impl::judge_row(const PlanRow& row, const PlanSample& sample, const SampleResult& result,
                                const LogprobRow* alternatives) {
  Verdict verdict;
  if (result.flags) {
    verdict.finish = FinishReason::kError;
    verdict.error = row_error(result.flags);
    return verdict;
  }
  const auto it = live.find(row.request_id);
  if (it == live.end()) return verdict;  // ended while this step was in flight
  Live& branch = it->second;
  const bool is_drawn = sample.kind == TailKind::kSample;
  if (sample.logprobs && alternatives && branch.has_logprobs) {
    verdict.has_logprob = true;
    verdict.logprob = is_drawn && branch.is_processed ? result.processed_logprob : result.logprob;
    if (std::optional<Error> error = logprob_error(result, verdict.logprob, *alternatives))
      return {.finish = FinishReason::kError, .error = std::move(error)};
    for (const LogprobRow::Entry& entry : alternatives->entries)  // best first, always as many as a row has
      if (entry.token >= 0 && verdict.top_logprobs.size() < branch.num_alternatives)
        verdict.top_logprobs.push_back({entry.token, entry.logprob});
  }
  if (!is_drawn || branch.is_beam) return verdict;
  BranchConstraint* constraint = branch.is_constrained ? scheduler->constraint_of(row.request_id) : nullptr;
  if (constraint && constraint->error()) return {.finish = FinishReason::kError, .error = constraint->error()};
  if (branch.tells_draws) {
    verdict.draw = Draw{result.logprob, result.processed_logprob, result.support, result.margin};
    verdict.draw->num_drafts = row.num_drafts;
    verdict.draw->run_idx = sample.run_idx;
    if (constraint && constraint->mask()) {
      verdict.draw->mask_digest = constraint->mask()->digest();
      verdict.draw->mask_allowed = constraint->mask()->num_allowed();
    }
  }
  verdict.token = result.token;
  const StopVerdict stop = advance(branch, result.token);
  verdict.hold_bytes = stop.hold_bytes;
  verdict.cut_bytes = stop.cut_bytes;
  verdict.finish = stop.finish;
  if (constraint) advance_constraint(constraint, &verdict);
  return verdict;
}

// What is whole ends here, also where the length would end it.
void Engine::Impl::advance_constraint(BranchConstraint* constraint, Verdict* verdict) {
  constraint->advance(verdict->token);
  if (constraint->error()) {
    *verdict = {.finish = FinishReason::kError, .error = constraint->error()};
  } else if (verdict->finish != FinishReason::kNone && verdict->finish != FinishReason::kLength) {
    return;
  } else if (constraint->ended()) {
    verdict->finish = FinishReason::kGrammarEnd;
  } else if (verdict->finish == FinishReason::kNone) {
    constraint->is_ready();  // lets the next mask be made, while the step that runs goes on
  }
}

StopVerdict Engine::Impl::advance(Live& branch, TokenId token) {
  const std::string_view bytes = tokenizer ? tokenizer->token_bytes(token) : std::string_view();
  StopVerdict verdict = branch.matcher.advance(token, bytes);
  if (!branch.filter) return verdict;
  if (branch.filter_stopped) return {.cut_bytes = static_cast<uint32_t>(bytes.size()), .finish = FinishReason::kPolicy};
  const PolicyVerdict policy = branch.filter->advance(token, bytes);
  branch.filter_stopped = policy.stops;
  if (policy.stops)
    return {.cut_bytes = std::max(verdict.cut_bytes, policy.cut_bytes), .finish = FinishReason::kPolicy};
  if (verdict.finish == FinishReason::kNone) verdict.hold_bytes = std::max(verdict.hold_bytes, policy.hold_bytes);
  return verdict;
}

// The text of an answer's end token is not shown.
void Engine::Impl::cut_end(Live& beam, std::span<TokenEvent> answer) {
  for (TokenEvent& event : answer) {
    if (event.token >= 0) event.cut_bytes = advance(beam, event.token).cut_bytes;
  }
}

// Events go out in order; runs of one branch in one call.
void Engine::Impl::deliver() {
  for (size_t first = 0; first < events.size();) {
    const RequestId id = events[first].request_id;
    size_t end = first + 1;
    while (end < events.size() && events[end].request_id == id) ++end;
    const auto it = live.find(id);
    if (it != live.end()) {
      if (it->second.is_beam) cut_end(it->second, std::span(events).subspan(first, end - first));
      if (it->second.sink) it->second.sink->on_events(std::span(events).subspan(first, end - first));
      if (events[end - 1].finish != FinishReason::kNone) live.erase(it);
    }
    first = end;
  }
  events.clear();
}

void Engine::Impl::hand_over_traces() {
  traces.clear();
  scheduler->take_traces(&traces);
  if (!trace_sink) return;
  for (RequestTrace& trace : traces) trace_sink->put(std::move(trace));
}

void Engine::Impl::publish() {
  const EngineStats& stats = scheduler->stats();
  monitor.sample(saturation_sample(stats), clock->now_ns());
  const Scheduler::Load load = load_is_asked ? scheduler->load() : Scheduler::Load();
  std::lock_guard lock(stats_mutex);
  shared_load = {.num_running = stats.num_running,
                 .num_waiting = stats.num_waiting,
                 .waiting_tokens = stats.queue_tokens,
                 .prompt_tokens_left = load.prompt_tokens_left,
                 .blocks_free = stats.blocks_free,
                 .prefill_tokens_ms = load.prefill_tokens_ms,
                 .prefill_pair_ms = load.prefill_pair_ms,
                 .decode_ms = load.decode_ms,
                 .decode_more_ms = load.decode_more_ms,
                 .answer_tokens = mean_answer(stats),
                 .prompt_tokens_each = prompts_each(stats)};
  shared_stats = stats;
  shared_stats.plan_ms = plan_ms;
  shared_stats.device_ms = device_ms;
  shared_stats.wall_ms = wall_ms;
  shared_stats.mask_wait_ms = mask_wait_ms;
  shared_stats.saturation = monitor.verdicts();
  shared_stats.littles_law = monitor.littles_law();
  shared_stats.recent_hit_rate = monitor.recent_hit_rate();
  shared_stats.recent_host_hit_rate = monitor.recent_host_hit_rate();
  shared_stats.recent_disk_hit_rate = monitor.recent_disk_hit_rate();
  if (disk) shared_stats.disk = disk->stats();
  if (adapters) shared_stats.adapters = adapters->stats();
}

void Engine::Impl::log_preemptions() {
  preemptions.clear();
  scheduler->take_preemptions(&preemptions);
  for (const Preemption& event : preemptions)
    log->event(LogLevel::kInfo, {{"engine_request", event.request_id}, {"wanted_by", event.wanted_by}},
               "request {} preempted (time {}): {} computed tokens and {} blocks given back, to be {} (swap {:.1f} ms, "
               "recompute {:.1f} ms); request {} needs a block",
               event.request_id, event.times, event.computed_tokens, event.num_blocks,
               event.swapped ? "swapped" : "recomputed", event.swap_ms, event.recompute_ms, event.wanted_by);
}

// The machine's fault, or broken books: what is in flight is lost as a whole, and every request ends with the error.
Error Engine::Impl::lose(Error error) {
  {
    std::lock_guard lock(stats_mutex);
    lost = error;
  }
  const char* code = error_code_name(error.code);
  log->event(LogLevel::kError, {{"code", code}}, "engine stopped: {}: {}", code, error.message);
  flights->clear();
  tell_step(nullptr);
  take_messages(/*last=*/true);
  scheduler->fail_all(error, clock->now_ns());
  scheduler->take_events(&events);
  deliver();
  scheduler->all_drained();
  hand_over_traces();
  publish();
  return error;
}

std::optional<Error> Engine::Impl::lost_for_good() {
  std::lock_guard lock(stats_mutex);
  if (!lost) return std::nullopt;
  return make_error(lost->code, "{}; the server must be restarted", lost->message);
}

Status Engine::Impl::check_allowed(const Request& request) const {
  const auto is_allowed = [this](RequestClass which) {
    return which == RequestClass::kInteractive || config.allowed_classes[static_cast<size_t>(which)];
  };
  if (!is_allowed(request.request_class)) {
    std::string names;
    for (size_t i = 0; i < kNumRequestClasses; ++i)
      if (const auto which = static_cast<RequestClass>(i); is_allowed(which))
        names += fmt::format("{}{}", names.empty() ? "" : ", ", request_class_name(which));
    return make_error(ErrorCode::kUnsupported, "request_class: this server takes {} (--allow-classes), found {}", names,
                      request_class_name(request.request_class));
  }
  if (config.allows_batch_invariant) return {};
  if (request.request_class == RequestClass::kEvaluation)
    return make_error(ErrorCode::kUnsupported,
                      "request_class: evaluation is batch-invariant, which this server does not serve "
                      "(--no-batch-invariant)");
  if (!request.batch_invariant) return {};
  return make_error(ErrorCode::kUnsupported, "batch_invariant: this server does not serve it (--no-batch-invariant)");
}

// What the request's numbers depend on beside its tokens.
void Engine::Impl::settle_mode(Request* request) const {
  request->batch_invariant |= config.batch_invariant || request->request_class == RequestClass::kEvaluation;
  read_adapter_of(request);
}

// ---- life ----------------------------------------------------------------------------------------------------------

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() {
  Impl& self = *impl_;
  if (self.config.disk.source) return;  // of a test, which ends it as a crash would
  while (!self.lost_for_good()) {
    const Result<bool> saved = self.save_blocks();
    if (!saved || !*saved) return;
  }
}

Result<std::unique_ptr<Engine>> Engine::create(const EngineConfig& config, std::shared_ptr<const Model> model,
                                               std::shared_ptr<const Tokenizer> tokenizer,
                                               std::unique_ptr<Backend> backend, const Clock* clock,
                                               const Progress& progress, DraftParts draft) {
  auto impl = std::make_unique<Impl>();
  std::vector<int32_t> ends;
  if (tokenizer) {
    const auto ids = tokenizer->end_of_generation_ids();
    ends.assign(ids.begin(), ids.end());
  }
  BesideMemory beside;
  if (draft.model) {
    const Result<EngineConfig> resolved = resolve(config, *model, *backend);
    if (!resolved) return resolved.error();
    const MemoryReport before = backend->memory();
    Result<std::unique_ptr<DraftModel>> loaded = DraftModel::load(*resolved, *model, std::move(draft), clock, {});
    if (!loaded) return loaded.error();
    impl->draft = *std::move(loaded);
    beside = impl->draft->memory();
    beside.before = before;
  }
  Result<WarmEngine> warm = warm_up(config, model, ends, backend.get(), progress, beside);
  if (!warm) return warm.error();
  if (impl->draft) {
    if (Status status = impl->draft->create_pool(warm->memory_plan.num_blocks); !status) return status.error();
    warm->memory_plan.draft_pool_bytes = warm->memory_plan.num_blocks * beside.block_bytes;
  }
  impl->config = warm->config;
  impl->memory_plan = warm->memory_plan;
  impl->lowering = std::move(warm->lowering);
  impl->model = std::move(model);
  impl->tokenizer = std::move(tokenizer);
  impl->backend = std::move(backend);
  impl->clock = clock;
  SchedulerConfig scheduler = scheduler_config(impl->config, impl->memory_plan, std::move(ends));
  if (scheduler.prefix_cache != PrefixCacheKind::kOff || scheduler.host_blocks > 0)
    scheduler.cache_identity = impl->cache_identity = llmrt::cache_identity(*impl->model, impl->config);
  scheduler.cost_prior = warm->cost_prior;
  scheduler.decode_item_tokens = impl->lowering->decode_item_tokens(impl->config.batch_invariant).least;
  const PoolShapes shapes(impl->model->config, impl->config);
  const auto groups = shapes.groups(impl->memory_plan.num_blocks, impl->memory_plan.num_host_blocks);
  Result<std::unique_ptr<DiskTier>> disk =
      open_disk(impl->config, impl->memory_plan, groups, scheduler.cache_identity, impl->backend.get());
  if (!disk) return disk.error();
  impl->disk = *std::move(disk);
  scheduler.disk = impl->disk.get();
  if (impl->memory_plan.adapter_bytes > 0)
    impl->adapters = std::make_unique<AdapterHost>(
        AdapterPoolLimits{.bytes = impl->memory_plan.adapter_bytes,
                          .slots_max = impl->config.adapters.slots,
                          .num_groups = static_cast<uint32_t>(impl->model->weights.groups.size())},
        impl->backend.get());
  scheduler.adapters = impl->adapters.get();
  scheduler.model_drafter = impl->draft.get();
  scheduler.state_back_tokens = kStateBackTokens;  // decoders set the ring of every state
  impl->scheduler = std::make_unique<Scheduler>(std::move(scheduler));
  impl->flights.emplace(impl->lowering.get(), impl->backend.get());
  impl->publish();
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Result<RequestId> Engine::submit(Request request) {
  Impl& self = *impl_;
  if (std::optional<Error> lost = self.lost_for_good()) return *lost;
  if (Status status = validate(request, self.model->config.vocab_size); !status) return status.error();
  if (Status status = self.scheduler->check(request); !status) return status.error();
  if (Status status = self.check_allowed(request); !status) return status.error();
  const bool has_draft_model = self.draft != nullptr;
  if (!request.speculation && (self.config.ngram_drafts || (self.config.model_drafts && has_draft_model)))
    request.speculation = Speculation{self.config.ngram_drafts ? self.ngram_drafts : nullptr, self.config.draft_tokens,
                                      self.config.model_drafts && has_draft_model};
  if (request.speculation && request.speculation->by_model && !has_draft_model)
    return make_error(ErrorCode::kUnsupported, "speculative: expected an engine with a draft model (--draft-model)");
  self.settle_mode(&request);
  if (request.batch_invariant && !self.backend->caps().batch_invariant)
    return make_error(
        ErrorCode::kUnsupported,
        "batch-invariant: expected a device whose numbers do not depend on what runs beside a request, {} "
        "has no such kernels",
        self.backend->caps().device_id);
  if (request.adapter_id != 0 && self.adapters && !request.adapter)
    return make_error(ErrorCode::kInvalidArgument, "adapter {}: expected its bytes, found none", request.adapter_id);
  const QueueLoad load = load_of(request);
  const QueueLoad inbox{self.inbox_tokens.load(), self.inbox_branches.load(), self.inbox_bytes.load()};
  if (std::optional<Error> full = self.scheduler->queue_full(request, inbox)) {
    ++self.num_refused;
    return *full;
  }
  self.count_inbox(load, 1);
  request.id = self.last_id->fetch_add(request.n) + 1;
  if (request.arrival_ns == 0) request.arrival_ns = self.clock->now_ns();
  if (request.deadline_ms > 0) request.deadline_ns = request.arrival_ns + TimeNs{request.deadline_ms} * 1'000'000;
  const EngineConfig& config = self.config;
  if (config.request_timeout_ms > 0) request.expiry_ns = request.arrival_ns + config.request_timeout_ms * 1'000'000;
  if (config.queue_timeout_ms > 0) request.start_by_ns = request.arrival_ns + config.queue_timeout_ms * 1'000'000;
  const RequestId id = request.id;
  if (self.inbox.post(std::move(request))) return id;
  // The engine has ended meanwhile.
  self.count_inbox(load, -1);
  if (std::optional<Error> lost = self.lost_for_good()) return *lost;
  return make_error(ErrorCode::kCancelled, kShuttingDown);
}

void Engine::cancel(RequestId id, const SentTimes& sent, FinishReason why) {
  impl_->inbox.post(CancelMessage{id, sent, why});
}
void Engine::set_paused(RequestId id, bool is_paused) {
  impl_->inbox.post(PauseMessage{id, is_paused});
}
void Engine::drained(RequestId id, const SentTimes& sent) {
  impl_->inbox.post(DrainedMessage{id, sent});
}
void Engine::stop() {
  impl_->inbox.stop();
}

void Engine::listen(std::shared_ptr<PrefixListener> listener) {
  impl_->inbox.post(ListenMessage{std::move(listener)});
}

PrefixSource Engine::prefix_source(const Request& request) const {
  Request asked;  // what of it counts
  asked.batch_invariant = request.batch_invariant;
  asked.request_class = request.request_class;
  asked.cache_salt = request.cache_salt;
  asked.adapter = request.adapter;
  asked.adapter_id = request.adapter_id;
  asked.adapter_scale = request.adapter_scale;
  asked.adapter_start = request.adapter_start;
  if (request.adapter) asked.prompt = request.prompt;  // in which an adapter may find its beginning
  impl_->settle_mode(&asked);
  return {prefix_identity(impl_->cache_identity, asked), prefix_mark(asked)};
}

Result<bool> Engine::tick(TimeNs until) {
  return impl_->tick(until);
}

Result<bool> Engine::prepare_next() {
  return impl_->prepare_next();
}

Status Engine::run() {
  while (!impl_->inbox.stopped()) {
    Result<bool> worked = impl_->tick(kNever);
    if (worked && !*worked && !impl_->scheduler->has_work()) worked = impl_->prepare_next();
    if (!worked) return worked.error();
    if (!*worked) impl_->inbox.wait(impl_->scheduler->has_work() ? kBatchSleep : kIdleSleep);
  }
  while (!impl_->flights->is_empty())
    if (Status status = impl_->land(); !status) return impl_->lose(status.error());
  impl_->take_messages(/*last=*/true);
  impl_->scheduler->fail_all(make_error(ErrorCode::kCancelled, kShuttingDown), impl_->clock->now_ns());
  impl_->scheduler->take_events(&impl_->events);
  impl_->deliver();
  impl_->scheduler->all_drained();
  impl_->hand_over_traces();
  return {};
}

std::optional<StalledStep> Engine::stalled() const {
  const TimeNs begin_ns = impl_->step_begin_ns, limit_ns = impl_->step_limit_ns;
  if (begin_ns == 0) return std::nullopt;
  const TimeNs since_ns = impl_->clock->now_ns() - begin_ns;
  if (since_ns <= limit_ns) return std::nullopt;
  return StalledStep{impl_->step_number, static_cast<double>(since_ns) * 1e-9};
}

Result<ReadyAdapter> Engine::load_adapter(const std::string& path) const {
  return read_adapter(path, *impl_->model, impl_->config.adapters, impl_->backend->caps());
}

void Engine::set_ids(std::shared_ptr<std::atomic<RequestId>> last_id) {
  impl_->last_id = std::move(last_id);
}

void Engine::set_log(std::shared_ptr<Log> log) {
  impl_->log = std::move(log);
}

void Engine::set_trace(std::shared_ptr<TraceSink> sink) {
  impl_->trace_sink = std::move(sink);
}

EngineStats Engine::stats() const {
  std::lock_guard lock(impl_->stats_mutex);
  EngineStats stats = impl_->shared_stats;
  stats.num_rejected += impl_->num_refused.load();
  return stats;
}

EngineLoad Engine::load() const {
  impl_->load_is_asked = true;
  EngineLoad load;
  {
    std::lock_guard lock(impl_->stats_mutex);
    load = impl_->shared_load;
  }
  load.waiting_tokens += impl_->inbox_tokens.load();
  load.num_waiting += static_cast<uint32_t>(impl_->inbox_branches.load());
  return load;
}

const MemoryPlan& Engine::memory_plan() const {
  return impl_->memory_plan;
}
const EngineConfig& Engine::config() const {
  return impl_->config;
}
const Model& Engine::model() const {
  return *impl_->model;
}
const Model* Engine::draft_model() const {
  return impl_->draft ? &impl_->draft->model() : nullptr;
}
Backend& Engine::backend() {
  return *impl_->backend;
}

}  // namespace llmrt
