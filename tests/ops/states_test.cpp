// A model with a group of blocks and a group of states, through scheduler, lowering and op lists on the reference:
// prompts that share beginnings, branches, chunks, full pools and a host tier. The log-probability of every token is
// worked out from its text alone, so a wrong record, a stale state or a lost move is seen; that places of states lie
// where they may, and no record is read and written in one step, the validated reference checks.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <map>

#include "core/engine/flights.h"
#include "core/schedule/plan_limits.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/sim_clock.h"
#include "tests/ops/sum_model.h"

namespace llmrt::optest {
namespace {

struct Client {
  Request request;
  uint32_t arrival_tick = 0;
};

// Few blocks and records, so that rows wait, are preempted to the host and come back.
SchedulerConfig tight_config(PrefixCacheKind cache, uint32_t chunk_tokens) {
  SchedulerConfig config;
  config.context_max = 320;
  config.sequences_max = 6;
  config.step_tokens_max = 64;
  config.sample_rows_max = 8;
  config.penalty_rows_max = 0;
  config.chunk_tokens = chunk_tokens;
  config.reserve_output_tokens = 0;
  config.watermark = 0;
  config.kv_pools = {
      {.num_blocks = 44, .block_tokens = 16},
      {.num_blocks = 8, .block_tokens = kStatePlaceTokens, .kind = CacheKind::kState, .num_host_blocks = 30}};
  config.prefix_cache = cache;
  config.on_exhaustion = OnExhaustion::kSwap;
  config.host_blocks = 60;
  return config;
}

std::vector<KvGroup> device_pools(const SchedulerConfig& config) {
  const KvPoolSize &blocks = config.kv_pools[0], &states = config.kv_pools[1];
  return {{.num_layers = 1,
           .num_kv_heads = 1,
           .head_dim = SumModel::kWidth,
           .block_tokens = blocks.block_tokens,
           .num_blocks = blocks.num_blocks,
           .num_host_blocks = config.host_blocks},
          {.num_layers = 2,
           .block_tokens = states.block_tokens,
           .num_blocks = states.num_blocks,
           .num_host_blocks = states.num_host_blocks,
           .state_columns = SumModel::kWidth}};
}

std::vector<Client> random_clients(uint32_t num_clients, std::mt19937_64& rng) {
  const auto token = [&] { return static_cast<int32_t>(rng() % SumModel::kVocab); };
  std::vector<std::vector<int32_t>> beginnings(3, std::vector<int32_t>(200));
  for (auto& beginning : beginnings)
    for (int32_t& t : beginning) t = token();
  std::vector<Client> clients(num_clients);
  for (uint32_t i = 0; i < num_clients; ++i) {
    Request& request = clients[i].request;
    const auto& beginning = beginnings[rng() % beginnings.size()];
    const uint64_t shared = rng() % 2 ? 16 * (rng() % 13) : rng() % 201;
    request.prompt.assign(beginning.begin(), beginning.begin() + static_cast<int>(shared));
    for (uint64_t own = 1 + rng() % 20; own-- > 0;) request.prompt.push_back(token());
    request.max_tokens = 1 + static_cast<uint32_t>(rng() % 90);
    request.n = rng() % 3 == 0 ? 2 : 1;
    request.sampling.seed = i;
    request.sampling.logprobs = 0;
    request.stop.ignore_eos = true;
    request.cache_salt = "one for all";
    clients[i].arrival_tick = static_cast<uint32_t>(rng() % (4 * num_clients));
  }
  return clients;
}

// What the run has reached, in the group of states.
struct Reached {
  uint64_t read = 0, saved = 0, state_copies = 0, stores = 0, loads = 0, cached_tokens = 0, tokens = 0;
};

class Run {
 public:
  Run(const SchedulerConfig& config, std::vector<Client> clients, std::mt19937_64& rng)
      : clients_(std::move(clients)), model_(rng), scheduler_(config) {
    EngineConfig engine;
    engine.context_max = config.context_max;
    engine.sequences_max = config.sequences_max;
    engine.penalty_rows_max = config.penalty_rows_max;
    engine.block_tokens = config.kv_pools[0].block_tokens;
    lowering_ =
        std::make_unique<Lowering>(test::make_fake_model(), model_.caps(), config.step_tokens_max,
                                   config.sample_rows_max, std::vector{AttentionGroup{1, 1, 0}, AttentionGroup{}});
    flights_ = std::make_unique<Flights>(lowering_.get(), &model_);
    ok(model_.load());
    ok(model_.create_state(lowering_->state_config(engine, plan_limits(config), 1u << 12, model_)));
    ok(model_.create_kv_pools(device_pools(config)));
  }

  Reached run() {
    for (uint32_t tick = 0; tick < 4000 && num_ended_ < num_branches(); ++tick) {
      now_ += test::kMs;
      for (Client& client : clients_)
        if (client.arrival_tick == tick) add(client.request);
      step();
      scheduler_.take_events(&events_);
      for (const TokenEvent& event : events_) take(event);
      events_.clear();
      ok(scheduler_.check_books());
    }
    CHECK(num_ended_ == num_branches());
    return reached_;
  }
  const EngineStats& stats() const { return scheduler_.stats(); }

 private:
  static void ok(const Status& status) {
    INFO((status ? "" : status.error().message));
    REQUIRE(status.ok());
  }
  uint32_t num_branches() const {
    uint32_t count = 0;
    for (const Client& client : clients_) count += client.request.n;
    return count;
  }

  void add(Request& request) {
    request.id = next_id_;
    next_id_ += request.n;
    request.arrival_ns = now_;
    ok(scheduler_.check(request));
    for (uint32_t i = 0; i < request.n; ++i) branches_[request.id + i] = {request.prompt, request.max_tokens};
    scheduler_.add(request, now_);
  }

  void step() {
    const IterationPlan* plan = scheduler_.plan(now_);
    if (plan == nullptr) return;
    for (const PlanRow& row : plan->rows)
      for (const StatePlace& place : std::span(plan->state_places).subspan(row.places_first, row.num_places))
        ++(place.position == row.start ? reached_.read : reached_.saved);
    for (const BlockCopy& copy : plan->block_copies) reached_.state_copies += copy.kv_group != 0;
    for (const BlockCopy& move : plan->block_stores) reached_.stores += move.kv_group;
    for (const BlockCopy& move : plan->block_loads) reached_.loads += move.kv_group;
    ok(flights_->launch({plan}));
    const Result<StepOutput> output = flights_->land();
    INFO((output ? "" : output.error().message));
    REQUIRE(output.ok());
    std::vector<Verdict> verdicts(plan->samples.size());
    for (const PlanRow& row : plan->rows)
      for (uint32_t i = row.sample_first; i < row.sample_first + row.num_samples; ++i) {
        const SampleResult& result = output->results[i];
        verdicts[i].token = result.token;
        verdicts[i].has_logprob = true;
        verdicts[i].logprob = result.logprob;
        if (--branches_[row.request_id].num_left == 0) verdicts[i].finish = FinishReason::kLength;
      }
    scheduler_.commit(*plan, verdicts, now_, {});
  }

  void take(const TokenEvent& event) {
    std::vector<int32_t>& text = branches_[event.request_id].text;
    INFO("request " << event.request_id << ", " << text.size() << " tokens");
    if (event.token >= 0) {
      REQUIRE(std::abs(event.logprob - model_.logprob(text, event.token)) < 1e-4);
      text.push_back(event.token);
      ++reached_.tokens;
    }
    if (event.finish == FinishReason::kNone) return;
    CHECK(event.finish == FinishReason::kLength);
    reached_.cached_tokens += event.cached_tokens;
    ++num_ended_;
    scheduler_.drained(event.request_id);
  }

  struct Branch {
    std::vector<int32_t> text;  // the prompt, and what was drawn
    uint32_t num_left = 0;
  };

  std::vector<Client> clients_;
  SumModel model_;
  Scheduler scheduler_;
  std::unique_ptr<Lowering> lowering_;
  std::unique_ptr<Flights> flights_;
  std::map<RequestId, Branch> branches_;
  std::vector<TokenEvent> events_;
  Reached reached_;
  RequestId next_id_ = 1;
  uint32_t num_ended_ = 0;
  TimeNs now_ = 0;
};

}  // namespace

TEST_CASE("sequences that share, branch and swap get the numbers of their own texts", "[states]") {
  const PrefixCacheKind cache = GENERATE(PrefixCacheKind::kHashed, PrefixCacheKind::kRadix);
  const uint32_t chunk_tokens = GENERATE(7u, 64u);
  std::mt19937_64 rng(5);  // fixed: it must reach what is demanded below
  Run run(tight_config(cache, chunk_tokens), random_clients(150, rng), rng);
  const Reached reached = run.run();
  CHECK(reached.read > 0);
  CHECK(reached.saved > reached.read);
  CHECK(reached.state_copies * 10 < reached.read);  // of branches of sequences that run on, where memory is scarce
  CHECK(reached.stores > 0);
  CHECK(reached.loads > 0);
  CHECK(reached.cached_tokens > 0);
  CHECK(reached.tokens > 3000);
  CHECK(run.stats().num_swaps > 0);
}

}  // namespace llmrt::optest
