#include "tests/sim/groups_run.h"

#include <fmt/format.h>

#include <map>

#include "core/engine/flights.h"
#include "tests/fakes/late_mask.h"
#include "tests/fakes/scripted_drafts.h"
#include "tests/fakes/sim_clock.h"

namespace llmrt::test::groups {
namespace {

class Simulation {
 public:
  Simulation(const Scenario& scenario, bool overlap, Coverage* coverage)
      : scenario_(scenario),
        overlap_(overlap),
        coverage_(*coverage),
        backend_(scenario.backend),
        scheduler_(scenario.config) {}

  // What went wrong; empty: nothing.
  std::string run() {
    if (Status status = start(); !status) return status.error().message;
    constexpr uint32_t kTicksMax = 20000;
    for (; tick_ < kTicksMax && !is_over(); ++tick_) {
      now_ += kMs;
      if (std::string wrong = arrive(); !wrong.empty()) return wrong;
      if (std::string wrong = step(); !wrong.empty()) return wrong;
      scheduler_.take_events(&events_);
      for (TokenEvent& event : events_)
        if (std::string wrong = take(event); !wrong.empty()) return wrong;
      events_.clear();
      if (Status status = scheduler_.check_books(); !status) return status.error().message;
    }
    if (!is_over()) return "it is stuck";
    return after_all();
  }

 private:
  Status start() {
    lowering_ = std::make_unique<Lowering>(make_fake_model(), backend_.caps(), scenario_.config.step_tokens_max,
                                           scenario_.config.sample_rows_max, scenario_.attention);
    const StateConfig state =
        lowering_->state_config(scenario_.engine, plan_limits(scenario_.config), 1u << 16, backend_);
    if (Status status = backend_.create_state(state); !status) return status;
    flights_ = std::make_unique<Flights>(lowering_.get(), &backend_);
    return backend_.create_kv_pools(scenario_.pools);
  }

  std::string arrive() {
    for (Client& client : scenario_.clients) {
      if (client.branches.empty() && client.arrival_tick <= tick_) {
        if (std::string wrong = begin(client); !wrong.empty()) return wrong;
      } else if (client.cancel_after_ticks >= 0 && !client.branches.empty() &&
                 tick_ == client.arrival_tick + static_cast<uint32_t>(client.cancel_after_ticks)) {
        for (uint32_t i = 0; i < client.request.n; ++i) scheduler_.cancel(client.request.id + i, now_);
      }
    }
    return "";
  }

  std::string begin(Client& client) {
    Request& request = client.request;
    request.id = next_id_;
    next_id_ += request.n;
    request.arrival_ns = now_;
    client.arrival_tick = tick_;
    LateMask::make_fresh(&request);
    client.branches.resize(request.n);
    ask_alone(client);
    if (client.right_drafts_of_16 >= 0) add_drafts(client);
    for (uint32_t i = 0; i < request.n; ++i) by_id_[request.id + i] = {&client, i};
    ++coverage_.requests;
    if (const Status status = scheduler_.check(request); !status) {
      ++coverage_.refused;
      for (Client::Branch& branch : client.branches) branch.finish = FinishReason::kError;
      return fits_alone(request) ? status.error().message : "";
    }
    scheduler_.add(request, now_);
    return "";
  }

  void ask_alone(Client& client) const {
    const auto& [poison, groups] = std::tie(scenario_.backend.poison, scenario_.backend.groups);
    if (client.request.beam) {
      const std::vector<FakeAnswer> answers = beams_alone(client.request, *tokenizer_, poison, groups);
      for (size_t i = 0; i < answers.size(); ++i) client.branches[i].alone = answers[i];
      return;
    }
    for (uint32_t i = 0; i < client.request.n; ++i) {
      Request alone = client.request;
      alone.sampling.branch = i;
      client.branches[i].alone = answer_alone(alone, *tokenizer_, poison, groups);
    }
  }

  static void add_drafts(Client& client) {
    DraftScript script{.seed = client.request.id,
                       .right_of_16 = static_cast<uint32_t>(client.right_drafts_of_16),
                       .vocab_size = kFakeVocab};
    for (const Client::Branch& branch : client.branches) script.answers.push_back(branch.alone.tokens);
    const uint32_t tokens_max = 1 + static_cast<uint32_t>(client.request.id % kDraftTokensMax);
    client.request.speculation = Speculation{std::make_shared<ScriptedDrafts>(std::move(script)), tokens_max};
  }

  // Whether the pools, all of them its own, hold a branch to its end.
  bool fits_alone(const Request& request) const {
    const uint32_t positions = static_cast<uint32_t>(request.prompt.size()) + request.max_tokens - 1;
    return std::ranges::all_of(scenario_.config.kv_pools, [&](const KvPoolSize& pool) {
      return blocks_needed(pool, positions) <= pool.num_blocks;
    });
  }

  // The beats of the engine's tick.
  std::string step() {
    const size_t flights_max = overlap_ ? 2 : 1;
    const IterationPlan* plan = flights_->size() < flights_max ? scheduler_.plan(now_) : nullptr;
    if (plan != nullptr) {
      count(*plan);
      if (Status status = flights_->launch({plan}); !status) return status.error().message;
      if (std::string wrong = check_states(*plan); !wrong.empty()) return wrong;
    }
    if (!flights_->is_empty() && (flights_->size() == flights_max || plan == nullptr))
      if (Status status = land(); !status) return status.error().message;
    if (plan == nullptr || plan->is_complete()) return "";
    scheduler_.plan_tail(*plan);
    const Status status = flights_->launch_tail();
    return status ? "" : status.error().message;
  }

  void count(const IterationPlan& plan) {
    ++coverage_.steps;
    coverage_.late_rows += plan.late_rows.size();
    for (const BlockCopy& move : plan.block_stores) ++coverage_.stores[move.kv_group];
    for (const BlockCopy& move : plan.block_loads) ++coverage_.loads[move.kv_group];
    for (const BlockCopy& move : plan.block_copies) ++coverage_.copies[move.kv_group];
    for (const PlanRow& row : plan.rows)
      for (const StatePlace& place : std::span(plan.state_places).subspan(row.places_first, row.num_places)) {
        ++(place.position == row.start ? coverage_.states_read : coverage_.states_saved);
        coverage_.states_saved_in_runs += place.position > row.start && row.num_drafts > 0;
      }
  }

  // Of the checkpoints that the plan has written, those behind tokens that are known beforehand.
  std::string check_states(const IterationPlan& plan) {
    for (const PlanRow& row : plan.rows) {
      const auto found = by_id_.find(row.request_id);
      if (found == by_id_.end() || found->second.first->request.beam) continue;
      const auto& [client, index] = found->second;
      std::vector<int32_t> tokens = client->request.prompt;
      const std::vector<int32_t>& answer = client->branches[index].alone.tokens;
      tokens.insert(tokens.end(), answer.begin(), answer.end());
      for (const StatePlace& place : std::span(plan.state_places).subspan(row.places_first, row.num_places)) {
        if (place.position == row.start || place.position > tokens.size()) continue;
        uint64_t state = 0;
        for (uint32_t p = 0; p < place.position; ++p)
          state = fake_state(state, fake_layer0(tokens[p], p, adapter_at(client->request, p)));
        ++coverage_.states_checked;
        if (backend_.state_in(place.kv_group, place.record) != state)
          return fmt::format("request {}: group {}, record {}: not the state behind {} tokens", row.request_id,
                             place.kv_group, place.record, place.position);
      }
    }
    return "";
  }

  Status land() {
    const IterationPlan& plan = *flights_->oldest().plan;
    const Result<StepOutput> output = flights_->land();
    if (!output) return output.error();
    std::vector<Verdict> verdicts(plan.samples.size());
    for (const PlanRow& row : plan.rows)
      for (uint32_t i = row.sample_first; i < row.sample_first + row.num_samples; ++i) {
        verdicts[i] = judge(row, output->results[i], output->logprobs.empty() ? nullptr : &output->logprobs[i]);
        if (ends_run(plan.samples[i], verdicts[i])) break;
      }
    scheduler_.commit(plan, verdicts, now_, {});
    return {};
  }

  // As the engine judges, from the tokens alone.
  Verdict judge(const PlanRow& row, const SampleResult& result, const LogprobRow* best) {
    Verdict verdict;
    if (result.flags != 0) {
      verdict.finish = FinishReason::kError;
      const bool is_finite = (result.flags & kResultNotFinite) == 0;
      verdict.error = Error{is_finite ? ErrorCode::kEmptySupport : ErrorCode::kNotFinite, "no token"};
      return verdict;
    }
    const auto found = by_id_.find(row.request_id);
    if (found == by_id_.end()) return verdict;
    const Request& request = found->second.first->request;
    if (request.beam) {
      for (const LogprobRow::Entry& entry : best->entries) verdict.top_logprobs.push_back({entry.token, entry.logprob});
      return verdict;
    }
    verdict.token = result.token;
    if (++num_drawn_[row.request_id] == request.max_tokens) verdict.finish = FinishReason::kLength;
    return verdict;
  }

  std::string take(const TokenEvent& event) {
    const auto found = by_id_.find(event.request_id);
    if (found == by_id_.end()) return "an event after the end";
    const auto [client, index] = found->second;
    Client::Branch& branch = client->branches[index];
    if (event.finish != FinishReason::kNone) count_cached(event.cached_tokens);
    if (event.token >= 0) {
      branch.tokens.push_back(event.token);
      ++coverage_.tokens;
      const size_t at = branch.tokens.size() - 1;
      if (at >= branch.alone.tokens.size() || branch.alone.tokens[at] != event.token)
        return fmt::format("request {}: token {} is {}, alone it is {}", event.request_id, at, event.token,
                           at < branch.alone.tokens.size() ? branch.alone.tokens[at] : -1);
    }
    if (event.finish == FinishReason::kNone) return "";
    branch.finish = event.finish;
    if (event.finish == FinishReason::kError) {
      const bool is_exhausted = event.error->code == ErrorCode::kPoolExhausted;
      if (is_exhausted ? fits_alone(client->request) : branch.alone.finish != FinishReason::kError)
        return fmt::format("request {}: {}", event.request_id, event.error->message);
      ++(is_exhausted ? coverage_.exhausted : coverage_.poisoned);
    }
    if (event.finish == FinishReason::kLength && client->request.beam && index == 0) {
      ++coverage_.searches;
      coverage_.searches_with_states += has_states();
    }
    ++coverage_.finished;
    scheduler_.drained(event.request_id);
    by_id_.erase(found);
    return "";
  }

  void count_cached(uint32_t num_tokens) {
    coverage_.cached_tokens += num_tokens;
    for (const KvPoolSize& pool : scenario_.config.kv_pools) {
      coverage_.windows_cached += num_tokens > 0 && pool.window > 0 && num_tokens > pool.window;
      coverage_.states_cached += num_tokens > 0 && pool.kind == CacheKind::kState;
    }
  }

  bool has_states() const {
    return std::ranges::count(scenario_.config.kv_pools, CacheKind::kState, &KvPoolSize::kind) > 0;
  }

  bool is_over() const {
    return flights_->is_empty() && std::ranges::all_of(scenario_.clients, [](const Client& client) {
             return !client.branches.empty() && std::ranges::all_of(client.branches, [](const Client::Branch& branch) {
               return branch.finish != FinishReason::kNone;
             });
           });
  }

  std::string after_all() {
    for (const Client& client : scenario_.clients)
      for (const Client::Branch& branch : client.branches)
        if (branch.finish == FinishReason::kLength && branch.tokens != branch.alone.tokens)
          return fmt::format("request {}: fewer tokens than alone", client.request.id);
    for (uint32_t g = 0; g < scenario_.config.kv_pools.size(); ++g)
      if (scheduler_.num_free_blocks(g) != scenario_.config.kv_pools[g].num_blocks)
        return fmt::format("group {}: {} of {} blocks are free in the end", g, scheduler_.num_free_blocks(g),
                           scenario_.config.kv_pools[g].num_blocks);
    const EngineStats& stats = scheduler_.stats();
    coverage_.preemptions += stats.num_preemptions;
    coverage_.swaps += stats.num_swaps;
    coverage_.parked += stats.num_parked;
    coverage_.drafts_proposed += stats.drafts.num_proposed;
    coverage_.drafts_accepted += stats.drafts.num_accepted;
    if (has_states()) {
      coverage_.states_right += stats.drafts.num_accepted;
      coverage_.states_wrong += stats.drafts.num_proposed - stats.drafts.num_accepted;
    }
    coverage_.states_evicted += stats.states.num_evicted;
    if (stats.states.checkpoints > stats.states.records_total || stats.states.records_used != 0)
      return fmt::format("{} records are held in the end", stats.states.records_used);
    ++coverage_.runs;
    return "";
  }

  Scenario scenario_;
  const bool overlap_;
  Coverage& coverage_;
  FakeBackend backend_;
  Scheduler scheduler_;
  std::unique_ptr<Lowering> lowering_;
  std::shared_ptr<const Tokenizer> tokenizer_ = make_fake_tokenizer();
  std::unique_ptr<Flights> flights_;
  std::map<RequestId, std::pair<Client*, uint32_t>> by_id_;
  std::map<RequestId, uint32_t> num_drawn_;
  std::vector<TokenEvent> events_;
  RequestId next_id_ = 1;
  uint32_t tick_ = 0;
  TimeNs now_ = 0;
};

}  // namespace

std::string simulate(const Scenario& scenario, bool overlap, Coverage* coverage) {
  return Simulation(scenario, overlap, coverage).run();
}

}  // namespace llmrt::test::groups
