#include "core/router/fleet.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace llmrt {
namespace {

// So many failures within so long, and an engine is left out for a while.
constexpr uint32_t kFailuresMax = 3;
constexpr TimeNs kFailuresWithin = 60'000'000'000, kOutFirst = 30'000'000'000, kOutMost = 1'800'000'000'000;

PlacementAsk ask_of(const Request& request) {
  PlacementAsk ask;
  ask.prompt_tokens = request.prompt.size() + request.begun.size();
  ask.answer_tokens =
      uint64_t{request.n} * (request.max_tokens - std::min<size_t>(request.max_tokens, request.begun.size()));
  ask.num_branches = request.n;
  ask.batch_invariant = request.batch_invariant || request.request_class == RequestClass::kEvaluation;
  ask.has_adapter = request.adapter_id != 0;
  ask.wants_draft_model = request.speculation && request.speculation->by_model;
  return ask;
}

bool may_be_handed_over(const Request& request) {
  return !request.beam && !request.sampling.prompt_logprobs && !request.batch_invariant &&
         request.request_class != RequestClass::kEvaluation && request.max_tokens > request.begun.size() + 1;
}

bool is_engines_fault(const TokenEvent& event) {
  if (event.finish != FinishReason::kError || !event.error) return false;
  return event.error->code == ErrorCode::kDeviceLost || event.error->code == ErrorCode::kInternal ||
         event.error->code == ErrorCode::kOutOfMemory;
}

}  // namespace

// A client's request wherever it is: what its engines tell goes on to the client under the ids that it was given first.
class Fleet::Flow final : public EventSink, public std::enable_shared_from_this<Flow> {
 public:
  Flow(Fleet* fleet, Request request) : fleet_(fleet), client_(std::move(request.sink)), request_(std::move(request)) {
    branches_.resize(request_.n);
  }

  const Request& request() const { return request_; }

  // Called by the thread of the engine that has the branches.
  void on_events(std::span<const TokenEvent> events) override {
    for (size_t first = 0, end = 0; first < events.size(); first = end) {
      while (end < events.size() && events[end].branch == events[first].branch) ++end;
      take(events.subspan(first, end - first), events[first].branch, /*stay=*/0);
    }
  }
  // In order, of one branch; `stay`: which of its engines tells it. What its engine's end ends may go on elsewhere:
  // then the client hears nothing of it.
  void take(std::span<const TokenEvent> events, uint32_t branch_idx, uint32_t stay) {
    std::vector<TokenEvent> told(events.begin(), events.end());
    std::optional<TokenEvent> fault;
    size_t worker;
    bool ends, hands_on;
    {
      std::lock_guard lock(mutex_);
      Branch& branch = branches_[branch_idx];
      if (branch.stay != stay) return;  // another one has it by now
      if (is_engines_fault(told.back())) {
        fault = std::move(told.back());
        told.pop_back();
      }
      for (const TokenEvent& event : told) note(event, branch_idx);
      worker = branch.worker;
      ends = !told.empty() && told.back().finish != FinishReason::kNone;
      hands_on = branch.gives && !ends && !fault && !branch.tokens.empty();
      if (hands_on) branch.gives = false;
    }
    if (ends) fleet_->note_end(worker, End::kWell);
    tell(told, branch_idx);  // before another engine has it: its thread tells what comes next
    if (fault && !fleet_->move(*this, branch_idx, *fault->error)) tell(std::span(&*fault, 1), branch_idx);
    if (hands_on) fleet_->hand_on(*this, branch_idx);
  }

  // The engine's submit of all branches, behind which their events wait for the ids.
  template <class Submit>
  Result<RequestId> begin(size_t worker, bool gives, Submit submit) {
    std::lock_guard lock(mutex_);
    Request copy = request_;
    copy.sink = shared_from_this();
    if (gives) copy.hand_over = HandOver::kGive;
    const Result<RequestId> id = submit(std::move(copy));
    if (!id) return id;
    first_id_ = *id;
    for (uint32_t i = 0; i < branches_.size(); ++i) {
      branches_[i].worker = worker;
      branches_[i].id = *id + i;
      branches_[i].gives = gives;
    }
    return id;
  }
  // Likewise of a branch that goes on.
  Status go_on(size_t worker, uint32_t branch_idx, Request rest, Engine& engine) {
    std::lock_guard lock(mutex_);
    Branch& branch = branches_[branch_idx];
    if (branch.is_cancelled) return make_error(ErrorCode::kCancelled, "nobody waits for it");
    const Result<RequestId> id = engine.submit(std::move(rest));
    if (!id) return id.error();
    branch.worker = worker;
    branch.id = *id;
    ++branch.stay;
    branch.gives = false;
    if (branch.is_paused) engine.set_paused(*id, true);
    return {};
  }

  // The request that makes the rest of a branch; nothing: it cannot go on elsewhere.
  std::optional<Request> rest_of(uint32_t branch_idx) {
    std::lock_guard lock(mutex_);
    const Branch& branch = branches_[branch_idx];
    if (branch.is_cancelled || request_.beam || request_.max_tokens == 0) return std::nullopt;
    if (branch.has_told && request_.sampling.prompt_logprobs) return std::nullopt;
    Request rest = request_;
    rest.n = 1;
    rest.sampling.branch += branch_idx;
    rest.begun.insert(rest.begun.end(), branch.tokens.begin(), branch.tokens.end());
    rest.sink = std::make_shared<BranchSink>(shared_from_this(), branch_idx, branch.stay + 1);
    return rest;
  }

  struct Place {
    size_t worker;
    RequestId id;
  };
  Place place_of(uint32_t branch_idx, bool cancels = false) {
    std::lock_guard lock(mutex_);
    Branch& branch = branches_[branch_idx];
    branch.is_cancelled |= cancels;
    return {branch.worker, branch.id};
  }
  void note_paused(uint32_t branch_idx, bool is_paused) {
    std::lock_guard lock(mutex_);
    branches_[branch_idx].is_paused = is_paused;
  }
  RequestId first_id() const {
    std::lock_guard lock(mutex_);
    return first_id_;
  }

 private:
  struct Branch {
    size_t worker = 0;
    RequestId id = 0;             // there
    std::vector<int32_t> tokens;  // that were told
    uint32_t stay = 0;            // how many engines had it before
    bool gives = false;           // another one is to go on behind the first token
    bool has_told = false;        // anything
    bool is_cancelled = false;
    bool is_paused = false;
  };
  // Of a branch that goes on alone.
  class BranchSink final : public EventSink {
   public:
    BranchSink(std::shared_ptr<Flow> flow, uint32_t branch_idx, uint32_t stay)
        : flow_(std::move(flow)), branch_idx_(branch_idx), stay_(stay) {}
    void on_events(std::span<const TokenEvent> events) override { flow_->take(events, branch_idx_, stay_); }

   private:
    const std::shared_ptr<Flow> flow_;
    const uint32_t branch_idx_, stay_;
  };

  void tell(std::span<TokenEvent> events, uint32_t branch_idx) const {
    if (!client_ || events.empty()) return;
    const RequestId id = first_id();
    for (TokenEvent& event : events) {
      event.request_id = id + branch_idx;
      event.branch = branch_idx;
    }
    client_->on_events(events);
  }
  void note(const TokenEvent& event, uint32_t branch_idx) {  // locked
    Branch& branch = branches_[branch_idx];
    branch.has_told = true;
    if (event.token >= 0 && !event.is_prompt) branch.tokens.push_back(event.token);
  }

  Fleet* const fleet_;
  const std::shared_ptr<EventSink> client_;
  const Request request_;
  mutable std::mutex mutex_;  // of what follows; taken before the fleet's
  std::vector<Branch> branches_;
  RequestId first_id_ = 0;
};

namespace {

WorkerFacts limits_of(Engine& engine) {
  WorkerFacts limits;
  limits.context_max = engine.config().context_max;
  limits.block_tokens = engine.memory_plan().block_tokens;
  limits.blocks_total = engine.memory_plan().num_blocks;
  limits.sequences_max = engine.config().sequences_max;
  limits.step_tokens = engine.config().step_tokens_max;
  limits.batch_invariant = engine.backend().caps().batch_invariant;
  limits.has_draft_model = engine.draft_model() != nullptr;
  limits.adapter_slots = engine.config().adapters.slots;
  return limits;
}

}  // namespace

Fleet::Fleet(std::vector<Worker> workers, const PlacementConfig& config, const Clock* clock, std::shared_ptr<Log> log)
    : config_(config), clock_(clock), log_(std::move(log)) {
  LLMRT_CHECK(!workers.empty(), "an engine at least");
  for (Worker& worker : workers) {
    worker.engine->set_ids(last_id_);
    State state;
    state.limits = limits_of(*worker.engine);
    state.prefixes = listen_to(worker.engine);
    state.figures.name = worker.name;
    state.engine = std::move(worker.engine);
    states_.push_back(std::move(state));
    names_.push_back(std::move(worker.name));
  }
}
Fleet::~Fleet() = default;

WorkerFacts Fleet::facts_of(const State& state) const {
  WorkerFacts facts = state.limits;
  if (!state.engine) {
    facts.unusable = "its engine is lost";
    return facts;
  }
  if (const std::optional<StalledStep> stalled = state.engine->stalled())
    facts.unusable = fmt::format("it has been at a step for {:.0f} s", stalled->seconds);
  else if (state.figures.is_drained)
    facts.unusable = "it is drained";
  else if (state.out_until_ns != 0)
    facts.unusable = "its requests have failed lately";
  else if (state.trial == Trial::kUnderWay)
    facts.unusable = "a request tries it after a failure";
  const EngineLoad load = state.engine->load();
  facts.num_running = load.num_running;
  facts.num_waiting = load.num_waiting;
  facts.waiting_tokens = load.waiting_tokens;
  facts.prompt_tokens_left = load.prompt_tokens_left;
  facts.blocks_free = load.blocks_free;
  facts.prefill_tokens_ms = load.prefill_tokens_ms;
  facts.prefill_pair_ms = load.prefill_pair_ms;
  facts.decode_ms = load.decode_ms;
  facts.decode_more_ms = load.decode_more_ms;
  facts.answer_tokens = load.answer_tokens;
  facts.prompt_tokens_each = load.prompt_tokens_each;
  return facts;
}

// Hashes, so without the lock.
std::vector<uint64_t> Fleet::cached_tokens_of(const Request& request) const {
  std::vector<PrefixView> views;
  {
    std::lock_guard lock(mutex_);
    for (const State& state : states_) views.push_back(state.prefixes);
  }
  return cached_tokens(views, request);
}

std::vector<WorkerFacts> Fleet::all_facts(TimeNs now) {
  std::vector<WorkerFacts> facts;
  for (State& state : states_) {
    if (state.out_until_ns != 0 && state.out_until_ns <= now) {
      state.out_until_ns = 0;
      state.trial = Trial::kReady;
    }
    facts.push_back(facts_of(state));
  }
  return facts;
}

Fleet::Chosen Fleet::take(uint32_t worker, bool gives) {
  State& state = states_[worker];
  if (state.trial == Trial::kReady) state.trial = Trial::kUnderWay;
  return {worker, state.engine, gives};
}

Result<Fleet::Chosen> Fleet::choose(const Request& request, std::string_view why, std::optional<size_t> but) {
  const TimeNs now = clock_->now_ns();
  const std::vector<uint64_t> cached = cached_tokens_of(request);
  std::lock_guard lock(mutex_);
  std::vector<WorkerFacts> facts = all_facts(now);
  for (size_t i = 0; i < facts.size(); ++i) facts[i].cached_tokens = cached[i];
  // Better one that has failed than none.
  if (std::ranges::none_of(facts, [](const WorkerFacts& worker) { return worker.unusable.empty(); }))
    for (size_t i = 0; i < facts.size(); ++i)
      if (states_[i].engine && !states_[i].figures.is_drained) facts[i].unusable.clear();
  if (but && facts[*but].unusable.empty()) facts[*but].unusable = "the request has failed there";
  const PlacementAsk ask = ask_of(request);
  PlacementChoice choice = place(config_, ask, facts, turn_++);
  PhaseChoice phase{choice.worker.value_or(0)};
  if (choice.worker && !rule_.roles.empty() && may_be_handed_over(request)) phase = choose_prefill(rule_, ask, choice);
  if (choice.worker) choice.worker = phase.worker;
  if (told_) told_({std::string(why), request.names, choice.worker, ask, choice});
  if (choice.worker) return take(phase.worker, phase.gives);
  const bool is_any_left = std::ranges::any_of(states_, [](const State& state) { return state.engine != nullptr; });
  return make_error(is_any_left ? ErrorCode::kUnsupported : ErrorCode::kDeviceLost,
                    "no device can serve the request: {}", describe(choice, names_));
}

// Who goes on behind a prompt; nothing: nobody else.
std::optional<Fleet::Chosen> Fleet::choose_next(const Request& rest, uint32_t from) {
  const TimeNs now = clock_->now_ns();
  std::lock_guard lock(mutex_);
  const PlacementAsk ask = ask_of(rest);
  std::vector<WorkerFacts> facts = all_facts(now);
  for (WorkerFacts& worker : facts) worker.cached_tokens = ask.prompt_tokens;  // on its way
  PlacementChoice choice = place(config_, ask, facts, turn_);
  choice.worker = choose_decode(rule_, from, ask, choice);
  if (!choice.worker) return std::nullopt;
  if (told_) told_({fmt::format("handed over from {}", names_[from]), rest.names, choice.worker, ask, choice});
  return take(*choice.worker, false);
}

bool Fleet::goes_elsewhere(const Chosen& chosen, const Error& error) {
  note_end(chosen.worker, End::kNeither);
  if (error.code != ErrorCode::kDeviceLost) return false;
  // Its thread is about to say so, unless another engine is there already.
  std::lock_guard lock(mutex_);
  if (states_[chosen.worker].engine == chosen.engine) lose_locked(chosen.worker);
  return true;
}

Result<RequestId> Fleet::submit(Request request) {
  if (request.arrival_ns == 0) request.arrival_ns = clock_->now_ns();  // wherever it goes on
  const auto flow = std::make_shared<Flow>(this, std::move(request));
  while (true) {
    const Result<Chosen> chosen = choose(flow->request(), "placed");
    if (!chosen) return chosen.error();
    const Result<RequestId> id = flow->begin(chosen->worker, chosen->gives, [&](Request copy) -> Result<RequestId> {
      const uint32_t n = copy.n;
      Result<RequestId> given = chosen->engine->submit(std::move(copy));
      if (!given) return given;
      std::lock_guard lock(mutex_);
      for (uint32_t branch = 0; branch < n; ++branch) places_[*given + branch] = {flow, branch};
      states_[chosen->worker].figures.num_placed += n;
      return given;
    });
    if (id || !goes_elsewhere(*chosen, id.error())) return id;
  }
}

// On the thread of the engine that ends the branch.
bool Fleet::move(Flow& flow, uint32_t branch, const Error& error) {
  const Flow::Place before = flow.place_of(branch);
  const size_t from = before.worker;
  if (error.code == ErrorCode::kDeviceLost) lose(from);  // it ends all that it has, and takes no more
  note_end(from, End::kFault);
  const std::optional<Request> rest = flow.rest_of(branch);
  while (rest) {
    const Result<Chosen> chosen = choose(*rest, fmt::format("moved from {}", names_[from]), from);
    if (!chosen) return false;
    const Status moved = flow.go_on(chosen->worker, branch, *rest, *chosen->engine);
    if (!moved && goes_elsewhere(*chosen, moved.error())) continue;
    if (!moved) return false;
    std::lock_guard lock(mutex_);
    // An engine that lives keeps the branch until it is drained, which its client tells only the one that has it now.
    if (states_[from].engine) states_[from].engine->drained(before.id);
    ++states_[chosen->worker].figures.num_placed;
    ++states_[chosen->worker].figures.num_moved_in;
    return true;
  }
  return false;
}

// On the thread of the engine that has told the first token of the branch. Where another one cannot go on, it does.
void Fleet::hand_on(Flow& flow, uint32_t branch) {
  const Flow::Place before = flow.place_of(branch);
  std::optional<Request> rest = flow.rest_of(branch);
  if (!rest || rest->begun.size() >= rest->max_tokens) return;
  rest->hand_over = HandOver::kTake;
  const std::optional<Chosen> chosen = choose_next(*rest, static_cast<uint32_t>(before.worker));
  if (!chosen) return;
  const Status taken = flow.go_on(chosen->worker, branch, *rest, *chosen->engine);
  if (!taken) {
    goes_elsewhere(*chosen, taken.error());
    return;
  }
  std::shared_ptr<Engine> giver;
  {
    std::lock_guard lock(mutex_);
    ++states_[chosen->worker].figures.num_placed;
    ++states_[chosen->worker].figures.num_handed_in;
    giver = states_[before.worker].engine;
  }
  if (giver) giver->cancel(before.id, {}, FinishReason::kHandedOver);
}

void Fleet::note_end(size_t worker, End end) {
  const TimeNs now = clock_->now_ns();
  std::lock_guard lock(mutex_);
  State& state = states_[worker];
  const bool was_tried = state.trial == Trial::kUnderWay;
  if (end != End::kFault) {
    if (was_tried) state.trial = end == End::kWell ? Trial::kNone : Trial::kReady;
    if (was_tried && end == End::kWell) {
      state.out_ns = 0;
      log_->info("{}: a request has ended well: it takes all again", names_[worker]);
    }
    return;
  }
  ++state.figures.num_failed;
  if (state.figures.is_lost) return;
  if (state.num_failures == 0 || now - state.failure_ns > kFailuresWithin) {
    state.num_failures = 0;
    state.failure_ns = now;
  }
  if (++state.num_failures < kFailuresMax && !was_tried) return;
  state.num_failures = 0;
  state.trial = Trial::kNone;
  state.out_ns = state.out_ns == 0 ? kOutFirst : std::min(2 * state.out_ns, kOutMost);
  state.out_until_ns = now + state.out_ns;
  log_->warn("{}: requests fail: it takes none for {} s", names_[worker], state.out_ns / 1'000'000'000);
}

// Where the branch that a client knows by this id is now.
std::optional<std::pair<std::shared_ptr<Engine>, RequestId>> Fleet::find(RequestId id, bool cancels) {
  Place place;
  {
    std::lock_guard lock(mutex_);
    const auto it = places_.find(id);
    if (it == places_.end()) return std::nullopt;
    place = it->second;
  }
  const Flow::Place now = place.flow->place_of(place.branch, cancels);
  if (cancels) note_end(now.worker, End::kNeither);
  std::lock_guard lock(mutex_);
  if (!states_[now.worker].engine) return std::nullopt;
  return std::pair(states_[now.worker].engine, now.id);
}

void Fleet::forget(RequestId id) {
  Place gone;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  const auto it = places_.find(id);
  if (it == places_.end()) return;
  gone = std::move(it->second);
  places_.erase(it);
}

void Fleet::cancel(RequestId id, const SentTimes& sent, FinishReason why) {
  if (const auto found = find(id, /*cancels=*/true)) found->first->cancel(found->second, sent, why);
  forget(id);
}
void Fleet::set_paused(RequestId id, bool is_paused) {
  Place place;
  {
    std::lock_guard lock(mutex_);
    const auto it = places_.find(id);
    if (it == places_.end()) return;
    place = it->second;
  }
  place.flow->note_paused(place.branch, is_paused);  // first: where it goes on meanwhile it is paused, too
  if (const auto found = find(id)) found->first->set_paused(found->second, is_paused);
}
void Fleet::drained(RequestId id, const SentTimes& sent) {
  if (const auto found = find(id)) found->first->drained(found->second, sent);
  forget(id);
}

size_t Fleet::lose(size_t worker) {
  std::lock_guard lock(mutex_);
  return lose_locked(worker);
}

size_t Fleet::lose_locked(size_t worker) {
  State& state = states_[worker];
  state.figures.num_losses += !state.figures.is_lost;
  state.figures.is_lost = true;
  state.engine.reset();
  state.prefixes = {};
  return static_cast<size_t>(std::ranges::count_if(states_, [](const State& state) { return !state.figures.is_lost; }));
}

void Fleet::bring_back(size_t worker, std::shared_ptr<Engine> engine) {
  engine->set_ids(last_id_);
  WorkerFacts limits = limits_of(*engine);
  PrefixView prefixes = listen_to(engine);
  std::lock_guard lock(mutex_);  // the engine before goes behind it
  State& state = states_[worker];
  state.engine.swap(engine);
  state.limits = std::move(limits);
  std::swap(state.prefixes, prefixes);
  state.figures.is_lost = false;
  state.out_until_ns = 0;
  state.num_failures = 0;
  state.trial = Trial::kReady;
}

void Fleet::drain(size_t worker, bool is_drained) {
  std::lock_guard lock(mutex_);
  states_[worker].figures.is_drained = is_drained;
}

std::vector<FleetWorkerFigures> Fleet::figures() const {
  std::lock_guard lock(mutex_);
  std::vector<FleetWorkerFigures> all;
  for (const State& state : states_) {
    all.push_back(state.figures);
    all.back().is_out = state.out_until_ns != 0 || state.trial != Trial::kNone;
  }
  return all;
}

}  // namespace llmrt
