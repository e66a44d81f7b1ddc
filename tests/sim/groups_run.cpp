#include "tests/sim/groups_run.h"

#include <fmt/format.h>

#include <map>

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
      arrive();
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
  struct Flight {
    const IterationPlan* plan;
    Ticket ticket;
  };

  Status start() {
    lowering_ = std::make_unique<Lowering>(make_fake_model(), backend_.caps(), scenario_.config.step_tokens_max,
                                           scenario_.config.sample_rows_max, scenario_.attention);
    const StateConfig state = lowering_->state_config(scenario_.engine, plan_limits(scenario_.config), 1u << 16);
    if (Status status = backend_.create_state(state); !status) return status;
    return backend_.create_kv_pools(scenario_.pools);
  }

  void arrive() {
    for (Client& client : scenario_.clients) {
      if (client.branches.empty() && client.arrival_tick <= tick_) {
        begin(client);
      } else if (client.cancel_after_ticks >= 0 && !client.branches.empty() &&
                 tick_ == client.arrival_tick + static_cast<uint32_t>(client.cancel_after_ticks)) {
        for (uint32_t i = 0; i < client.request.n; ++i) scheduler_.cancel(client.request.id + i, now_);
      }
    }
  }

  void begin(Client& client) {
    Request& request = client.request;
    request.id = next_id_;
    next_id_ += request.n;
    request.arrival_ns = now_;
    client.arrival_tick = tick_;
    client.branches.resize(request.n);
    for (uint32_t i = 0; i < request.n; ++i) {
      Request alone = request;
      alone.sampling.branch = i;
      client.branches[i].alone = answer_alone(alone, *tokenizer_, scenario_.backend.poison, scenario_.backend.groups);
      by_id_[request.id + i] = {&client, i};
    }
    ++coverage_.requests;
    if (const Status status = scheduler_.check(request); !status) {
      for (Client::Branch& branch : client.branches)
        branch.finish = FinishReason::kError, branch.alone.finish = FinishReason::kError;
      return;
    }
    scheduler_.add(request, now_);
  }

  std::string step() {
    const size_t flights_max = overlap_ ? 2 : 1;
    const IterationPlan* plan = flights_.size() < flights_max ? scheduler_.plan(now_) : nullptr;
    if (plan != nullptr)
      if (std::string wrong = launch(*plan); !wrong.empty()) return wrong;
    if (flights_.empty() || (flights_.size() < flights_max && plan != nullptr)) return "";
    return land();
  }

  std::string launch(const IterationPlan& plan) {
    ++coverage_.steps;
    for (const BlockCopy& move : plan.block_stores) ++coverage_.stores[move.kv_group];
    for (const BlockCopy& move : plan.block_loads) ++coverage_.loads[move.kv_group];
    for (const BlockCopy& move : plan.block_copies) ++coverage_.copies[move.kv_group];
    LoweredStep lowered;
    lowering_->lower(plan, &lowered);
    const Result<Ticket> ticket = backend_.submit(lowered.submission());
    if (!ticket) return ticket.error().message;
    flights_.push_back({&plan, *ticket});
    return "";
  }

  std::string land() {
    const Flight flight = flights_.front();
    flights_.pop_front();
    Result<StepOutput> output = backend_.wait(flight.ticket);
    if (!output) return output.error().message;
    std::vector<Verdict> verdicts(flight.plan->samples.size());
    for (const PlanRow& row : flight.plan->rows)
      for (uint32_t i = row.sample_first; i < row.sample_first + row.num_samples; ++i)
        verdicts[i] = judge(row, output->results[i]);
    scheduler_.commit(*flight.plan, verdicts, now_, {});
    return "";
  }

  // As the engine judges, from the tokens alone.
  Verdict judge(const PlanRow& row, const SampleResult& result) {
    Verdict verdict;
    if (result.flags != 0) {
      verdict.finish = FinishReason::kError;
      verdict.error = Error{ErrorCode::kNotFinite, "poisoned"};
      return verdict;
    }
    const auto found = by_id_.find(row.request_id);
    if (found == by_id_.end()) return verdict;
    const auto& [client, branch] = found->second;
    verdict.token = result.token;
    uint32_t& drawn = num_drawn_[row.request_id];
    if (++drawn == client->request.max_tokens) verdict.finish = FinishReason::kLength;
    return verdict;
  }

  std::string take(const TokenEvent& event) {
    const auto found = by_id_.find(event.request_id);
    if (found == by_id_.end()) return "an event after the end";
    const auto [client, index] = found->second;
    Client::Branch& branch = client->branches[index];
    coverage_.cached_tokens += event.finish != FinishReason::kNone ? event.cached_tokens : 0;
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
    if (event.finish == FinishReason::kError && branch.alone.finish != FinishReason::kError && event.error &&
        event.error->code != ErrorCode::kPoolExhausted)
      return fmt::format("request {}: {}", event.request_id, event.error->message);
    coverage_.poisoned += branch.alone.finish == FinishReason::kError;
    ++coverage_.finished;
    scheduler_.drained(event.request_id);
    by_id_.erase(found);
    return "";
  }

  bool is_over() const {
    return flights_.empty() && std::ranges::all_of(scenario_.clients, [](const Client& client) {
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
  std::deque<Flight> flights_;
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
