// The seeded simulation of a model with several KV groups: groups_sim [--seeds N] [--first-seed S]. Scheduler, lowering
// and the fake device go round without an engine. Each seed makes pools of blocks, of windows and of states, clients
// that ask about few texts, branch, are cancelled and yield to each other. What each gets must be what it gets alone: a
// wrong slot, a stale snapshot or a freed block changes the tokens. Books are checked after every step.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <deque>
#include <map>
#include <random>

#include "core/engine/lower.h"
#include "core/schedule/scheduler.h"
#include "tests/fakes/fake_backend.h"
#include "tests/fakes/sim_clock.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

char running_seed[64];

// A failed LLMRT_CHECK stops the process: say which seed it was.
void on_abort(int) {
  const std::string_view text = running_seed;
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

struct Dice {
  std::mt19937_64 random;
  uint32_t between(uint32_t low, uint32_t high) { return low + static_cast<uint32_t>(random() % (high - low + 1)); }
  bool one_in(uint32_t n) { return random() % n == 0; }
  uint32_t one_of(std::initializer_list<uint32_t> values) { return *(values.begin() + random() % values.size()); }
  int32_t token() { return static_cast<int32_t>(between(2, kFakeVocab - 1)); }
};

struct Coverage {
  uint64_t runs = 0, requests = 0, tokens = 0, steps = 0, cached_tokens = 0, preemptions = 0, swaps = 0;
  std::array<uint64_t, kKvGroupsMax> stores = {}, loads = {}, copies = {};
  uint64_t poisoned = 0, finished = 0;
};

struct Client {
  Request request;
  uint32_t arrival_tick = 0;
  int cancel_after_ticks = -1;
  uint32_t ended_tick = 0;
  struct Branch {
    FakeAnswer alone;
    std::vector<int32_t> tokens;
    FinishReason finish = FinishReason::kNone;
  };
  std::vector<Branch> branches;
};

struct Scenario {
  EngineConfig engine;
  SchedulerConfig config;
  std::vector<KvGroup> pools;
  FakeBackendConfig backend;
  std::deque<Client> clients;
  std::vector<AttentionGroup> attention;
};

// Group 0 keeps all blocks; the others are windows and states, with blocks of other sizes.
void choose_groups(Scenario& scenario, Dice& dice) {
  const uint32_t num_groups = dice.between(2, 4), leading = dice.one_of({16, 16, 32});
  const uint32_t context = scenario.config.context_max, rows = scenario.config.sequences_max;
  const bool has_host = dice.one_in(2);
  scenario.backend.groups.clear();
  for (uint32_t g = 0; g < num_groups; ++g) {
    KvPoolSize pool{.block_tokens = leading};
    const uint32_t kind = g == 0 ? 0 : dice.between(1, 3);
    if (kind == 3) {
      pool.kind = CacheKind::kState;
      pool.block_tokens = leading * dice.one_of({1, 1, 2, 4});
      pool.num_blocks = rows + dice.between(0, 6);
    } else {
      if (g > 0) pool.block_tokens = dice.one_of({16, 32, 64});
      if (kind == 2) pool.window = dice.one_of({1, 7, 16, 20, 40, 100});
      const uint32_t seen = pool.window > 0 ? pool.window + pool.block_tokens : context;
      pool.num_blocks = dice.between(ceil_div(seen, pool.block_tokens) + 1, ceil_div(seen, pool.block_tokens) * 3);
    }
    if (g > 0 && has_host) pool.num_host_blocks = dice.between(1, 20);
    scenario.config.kv_pools.push_back(pool);
    const bool is_state = pool.kind == CacheKind::kState;
    scenario.backend.groups.push_back({is_state, pool.window});
    scenario.attention.push_back(is_state ? AttentionGroup{} : AttentionGroup{1, 1, pool.window});
  }
  if (has_host) scenario.config.host_blocks = dice.between(1, 30);
  for (const KvPoolSize& pool : scenario.config.kv_pools)
    scenario.pools.push_back(
        {1, 1, 8, pool.block_tokens, pool.num_blocks, KvDType::kF16,
         &pool == &scenario.config.kv_pools[0] ? scenario.config.host_blocks : pool.num_host_blocks});
  scenario.config.prefix_cache =
      std::array{PrefixCacheKind::kOff, PrefixCacheKind::kHashed, PrefixCacheKind::kRadix}[dice.between(0, 2)];
}

Client random_client(const std::vector<std::vector<int32_t>>& texts, const SchedulerConfig& config, Dice& dice) {
  Client client;
  Request& request = client.request;
  const std::vector<int32_t>& text = texts[dice.between(0, 2)];
  const uint32_t shared = dice.one_in(4) ? 0 : dice.one_in(2) ? 16 * dice.between(1, 5) : dice.between(1, 90);
  request.prompt.assign(text.begin(), text.begin() + shared);
  for (uint32_t i = dice.one_of({0, 1, 3, 30}) + (shared == 0); i-- > 0;) request.prompt.push_back(dice.token());
  request.max_tokens = dice.between(1, dice.one_of({3, 30, 60}));
  request.max_tokens = std::min(request.max_tokens, config.context_max - static_cast<uint32_t>(request.prompt.size()));
  request.sampling.temperature = dice.one_in(2) ? 0 : 1;
  request.sampling.seed = dice.between(0, 3);
  request.stop.ignore_eos = true;
  if (dice.one_in(4)) request.n = dice.between(2, 4);
  if (dice.one_in(2)) request.cache_salt = "salt";
  if (dice.one_in(8)) request.adapter_id = 1;
  if (dice.one_in(6)) client.cancel_after_ticks = static_cast<int>(dice.between(0, 30));
  return client;
}

Scenario make_scenario(uint64_t seed) {
  Dice dice{std::mt19937_64(seed * 0x2545f4914f6cdd1d)};
  Scenario scenario;
  SchedulerConfig& config = scenario.config;
  config.context_max = dice.one_of({160, 200});
  config.sequences_max = dice.one_of({1, 4, 8});
  config.step_tokens_max = dice.one_of({5, 16, 64, 256});
  config.sample_rows_max = dice.one_of({3, 8, 32});
  config.penalty_rows_max = 0;
  config.chunks_by_need = false;
  config.chunk_tokens = std::min(config.step_tokens_max, dice.one_of({7, 32, 256}));
  config.reserve_output_tokens = dice.one_of({0, 0, 16});
  config.watermark = dice.one_in(2) ? 0.0 : 0.1;
  config.queue_tokens_max = 1u << 20;
  choose_groups(scenario, dice);
  const OnExhaustion policies[] = {OnExhaustion::kPreempt, OnExhaustion::kRecompute, OnExhaustion::kSwap};
  config.on_exhaustion = policies[dice.between(0, config.host_blocks > 0 ? 2 : 1)];
  config.end_of_generation = kFakeEnds;
  scenario.engine.context_max = config.context_max;
  scenario.engine.sequences_max = config.sequences_max;
  scenario.engine.step_tokens_max = config.step_tokens_max;
  scenario.engine.sample_rows_max = config.sample_rows_max;
  scenario.engine.penalty_rows_max = 1;
  scenario.engine.block_tokens = 16;  // the smallest: tables have room for them
  if (dice.one_in(4)) scenario.backend.poison = 300;
  std::vector<std::vector<int32_t>> texts(3);
  for (std::vector<int32_t>& text : texts)
    for (int i = 0; i < 90; ++i) text.push_back(dice.token());
  uint32_t tick = 0;
  for (uint32_t i = dice.between(5, 30); i-- > 0;) {
    scenario.clients.push_back(random_client(texts, config, dice));
    scenario.clients.back().arrival_tick = tick += dice.between(0, dice.one_of({0, 3, 12}));
  }
  return scenario;
}

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
    const StateConfig state =
        lowering_->state_config(scenario_.engine, plan_limits(scenario_.config), 1u << 16, backend_);
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

void print(const Coverage& c) {
  fmt::print("{} runs, {} requests, {} tokens, {} steps, {} preemptions ({} swaps), {} prompt tokens cached\n", c.runs,
             c.requests, c.tokens, c.steps, c.preemptions, c.swaps, c.cached_tokens);
  for (uint32_t g = 0; g < kKvGroupsMax; ++g)
    fmt::print("  group {}: {} stores, {} loads, {} copies\n", g, c.stores[g], c.loads[g], c.copies[g]);
  fmt::print("  {} ended, {} of them poisoned\n", c.finished, c.poisoned);
}

// With enough seeds everything must have happened.
bool reached_everything(const Coverage& c) {
  bool all = c.cached_tokens > 0 && c.preemptions > c.swaps && c.swaps > 0 && c.poisoned > 0;
  for (uint32_t g = 0; g < kKvGroupsMax; ++g) all = all && c.stores[g] > 0 && c.loads[g] > 0 && c.copies[g] > 0;
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t num_seeds = 100, first_seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--seeds") num_seeds = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--first-seed") first_seed = std::strtoull(argv[i + 1], nullptr, 10);
  }
  std::signal(SIGABRT, on_abort);
  Coverage coverage;
  for (uint64_t seed = first_seed; seed < first_seed + num_seeds; ++seed) {
    std::snprintf(running_seed, sizeof(running_seed), "groups_sim: in seed %llu\n",
                  static_cast<unsigned long long>(seed));
    for (const bool overlap : {false, true}) {
      const Scenario scenario = make_scenario(seed);
      const std::string wrong = Simulation(scenario, overlap, &coverage).run();
      if (wrong.empty()) continue;
      fmt::print(stderr, "FAILED: seed {}{}: {}\nreplay: groups_sim --first-seed {} --seeds 1\n", seed,
                 overlap ? ", one step ahead" : "", wrong, seed);
      return 1;
    }
  }
  print(coverage);
  if (num_seeds >= 100 && !reached_everything(coverage)) {
    fmt::print(stderr, "FAILED: {} seeds did not reach everything\n", num_seeds);
    return 1;
  }
  return 0;
}
