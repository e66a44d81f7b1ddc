#include "tests/sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <random>
#include <unordered_map>

#include "core/engine/engine.h"
#include "core/kv/prefix_digests.h"
#include "core/ops/recurrent_ops.h"
#include "tests/fakes/late_mask.h"
#include "tests/fakes/scripted_drafts.h"
#include "tests/fakes/sim_clock.h"
#include "tests/sim/client.h"

namespace llmrt::test {
namespace {

constexpr int kIdleTicksMax = 1000;   // without any event: it is stuck
constexpr uint64_t kStepsMin = 200;   // of a run, on as many engines as it takes where devices are lost
constexpr uint32_t kWavesMax = 5000;  // where most requests are refused

struct Records final : TraceSink {
  std::unordered_map<RequestId, RequestTrace> by_id;
  uint64_t num = 0;
  void put(RequestTrace trace) override {
    ++num;
    by_id[trace.id] = std::move(trace);
  }
};

class Simulation {
 public:
  Simulation(const Scenario& scenario, bool overlap, Coverage* coverage)
      : scenario_(scenario), overlap_(overlap), coverage_(coverage), random_(scenario.seed) {}
  std::string run();

 private:
  std::string start();
  void expect_clients();
  bool goes_on();
  std::string live();
  std::string before_tick();
  std::string arrive(size_t first);
  std::string after_tick();
  std::string after_all();
  bool all_drained() const;

  Scenario scenario_;
  const bool overlap_;
  Coverage* coverage_;
  std::mt19937_64 random_;
  SimClock clock_;
  std::shared_ptr<const Tokenizer> tokenizer_ = make_fake_tokenizer();
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<Records> records_ = std::make_shared<Records>();
  std::vector<std::unique_ptr<Client>> clients_;  // the branches of a request in a row
  size_t num_expected_ = 0;  // of the scenario's clients, those that stand in clients_ or did for an engine before
  uint32_t tick_ = 0, num_waves_ = 1;
  uint64_t num_steps_before_ = 0;  // on engines that are lost
  uint64_t num_ended_ = 0;
  bool lost_ = false;
};

std::string Simulation::start() {
  EngineConfig config = scenario_.config;
  config.overlap = overlap_;
  FakeBackendConfig backend = scenario_.backend;
  backend.masked_drafts = &coverage_->masked_drafts;
  DraftParts draft;
  if (scenario_.draft_model) draft = {make_fake_model(), std::make_unique<FakeBackend>(*scenario_.draft_model)};
  auto engine = Engine::create(config, make_fake_model(scenario_.is_hybrid()), tokenizer_,
                               std::make_unique<FakeBackend>(std::move(backend)), &clock_, {}, std::move(draft));
  if (!engine) return "the engine did not start: " + engine.error().message;
  engine_ = std::move(*engine);
  engine_->listen(std::make_shared<PrefixDigests>());  // stops the process when what is told does not balance
  engine_->set_trace(records_);
  expect_clients();
  return "";
}

void Simulation::expect_clients() {
  const FakeBackendConfig& backend = scenario_.backend;
  for (; num_expected_ < scenario_.clients.size(); ++num_expected_) {
    const ClientPlan& plan = scenario_.clients[num_expected_];
    std::vector<FakeAnswer> searched;
    if (plan.request.beam) searched = beams_alone(plan.request, *tokenizer_, backend.poison, backend.groups);
    for (uint32_t branch = 0; branch < plan.request.n; ++branch) {
      auto client = std::make_unique<Client>();
      client->plan = &plan;
      client->branch = branch;
      client->engine = engine_.get();
      client->tokenizer = tokenizer_.get();
      Request alone = plan.request;
      alone.n = 1;
      alone.sampling.branch += branch;
      client->alone =
          plan.request.beam ? searched[branch] : answer_alone(alone, *tokenizer_, backend.poison, backend.groups);
      client->begin();
      clients_.push_back(std::move(client));
    }
  }
}

std::string Simulation::arrive(size_t first) {
  Request request = clients_[first]->plan->request;
  const uint32_t n = request.n;
  ++coverage_->num_requests;
  coverage_->num_branches += n;
  auto sink = std::make_shared<Sink>();
  for (uint32_t branch = 0; branch < n; ++branch) sink->branches.push_back(clients_[first + branch].get());
  if (request.deadline_ns != 0) request.deadline_ns += clock_.now_ns();
  LateMask::make_fresh(&request);
  if (const int right = clients_[first]->plan->right_drafts_of_16; right >= 0) {
    DraftScript script{.seed = random_(), .right_of_16 = static_cast<uint32_t>(right), .vocab_size = kFakeVocab};
    for (uint32_t branch = 0; branch < n; ++branch) script.answers.push_back(clients_[first + branch]->alone.tokens);
    request.speculation = Speculation{std::make_shared<ScriptedDrafts>(std::move(script)),
                                      1 + static_cast<uint32_t>(random_() % kDraftTokensMax)};
  }
  if (clients_[first]->plan->asks_draft_model) {
    if (!request.speculation)
      request.speculation = Speculation{nullptr, 1 + static_cast<uint32_t>(random_() % kDraftTokensMax)};
    request.speculation->by_model = true;
  }
  request.sink = sink;
  const EngineConfig& config = engine_->config();
  const TimeNs expiry_ns = config.request_timeout_ms > 0 ? clock_.now_ns() + config.request_timeout_ms * kMs : 0;
  const TimeNs start_by_ns = config.queue_timeout_ms > 0 ? clock_.now_ns() + config.queue_timeout_ms * kMs : 0;
  TimeNs deadline_ns = request.deadline_ns;
  if (deadline_ns == 0 || (expiry_ns != 0 && expiry_ns < deadline_ns)) deadline_ns = expiry_ns;
  const Result<RequestId> id = engine_->submit(std::move(request));
  for (Client* client : sink->branches) {
    client->arrived = true;
    client->arrived_at = tick_;
    client->deadline_ns = deadline_ns;
    client->start_by_ns = start_by_ns;
    client->refused = client->drained = !id.ok();
    if (id) client->id = *id + client->branch;
    if (n > 1 && client->plan->request.beam) client->together = sink->branches;
  }
  if (id) return "";
  ++coverage_->num_refused;
  return check_refusal(*engine_, lost_, *clients_[first], id.error());
}

std::string Simulation::before_tick() {
  for (size_t i = 0; i < clients_.size(); ++i) {
    Client* client = clients_[i].get();
    if (!client->arrived && client->plan->arrival_tick <= tick_) {
      if (std::string wrong = arrive(i); !wrong.empty()) return wrong;
    }
    if (!client->arrived || client->drained) continue;
    const int age = static_cast<int>(tick_ - client->arrived_at);
    const bool cancels = client->together.empty() || client == client->together.back();  // one for all beams
    if (age == client->plan->cancel_after_ticks && cancels) client->cancel();
    if (age == client->plan->pause_at_ticks) client->pause(true);
    if (client->is_paused && age >= client->plan->pause_at_ticks + client->plan->pause_ticks) client->pause(false);
    if (client->ended() && tick_ - client->ended_at >= client->plan->drain_after_ticks) {
      client->drained = true;
      engine_->drained(client->id);
    }
  }
  return "";
}

std::string Simulation::after_tick() {
  // 8 times, and then by those that are admitted in the same step after it came of age.
  const uint32_t overtaken_max = 8 + engine_->config().sequences_max, overtaken = engine_->stats().overtaken_most;
  if (overtaken > overtaken_max)
    return fmt::format("a request was overtaken {} times, {} at most is the bound", overtaken, overtaken_max);
  for (const auto& client : clients_) {
    if (!client->arrived || client->refused) continue;
    const auto tell = [&](const std::string& what) { return fmt::format("request {}: {}", client->id, what); };
    if (!client->wrong.empty()) return tell(client->wrong);
    if (!client->ended()) {
      if (lost_) return tell("the device is lost and it has not ended");
      if (client->deadline_ns != 0 && client->deadline_ns <= clock_.now_ns()) return tell("runs beyond its deadline");
      continue;
    }
    if (client->ended_at != 0) continue;
    client->ended_at = tick_;
    ++num_ended_;
    ++coverage_->finished[static_cast<size_t>(client->got.finish)];
    coverage_->num_tokens += client->got.tokens.size();
    if (client->error) {
      coverage_->not_finite += client->error->code == ErrorCode::kNotFinite;
      coverage_->too_complex += client->error->code == ErrorCode::kGrammarTooComplex;
      coverage_->empty_support += client->error->code == ErrorCode::kEmptySupport;
      coverage_->pool_exhausted += client->error->code == ErrorCode::kPoolExhausted;
      coverage_->overloaded += client->error->code == ErrorCode::kOverloaded;
    }
    if (std::string wrong = client->check_end(clock_.now_ns(), engine_->memory_plan()); !wrong.empty()) {
      return tell(wrong);
    }
    const bool told = client->got.finish == FinishReason::kEos || client->got.finish == FinishReason::kLength;
    coverage_->num_searches += told && client->plan->request.beam && client->branch == 0;
    coverage_->cached_tokens += client->cached_tokens;
    coverage_->partial_hits += client->cached_tokens % engine_->memory_plan().block_tokens != 0;
    if (std::string wrong = check_cached(*engine_, *client, clients_); !wrong.empty()) return tell(wrong);
  }
  return "";
}

bool Simulation::all_drained() const {
  return std::all_of(clients_.begin(), clients_.end(), [](const auto& client) { return client->drained; });
}

std::string Simulation::after_all() {
  if (!lost_ && !engine_->tick().ok()) return "the last tick failed";
  const EngineStats stats = engine_->stats();
  coverage_->num_steps += stats.num_steps;
  coverage_->num_preemptions += stats.num_preemptions;
  coverage_->num_swaps += stats.num_swaps;
  coverage_->num_parked += stats.num_parked;
  coverage_->drafts_proposed += stats.drafts.num_proposed;
  coverage_->drafts_accepted += stats.drafts.num_accepted;
  coverage_->steps_awaited += stats.drafts.num_awaited;
  coverage_->model_drafts_proposed += stats.drafts.num_model_proposed;
  coverage_->model_drafts_accepted += stats.drafts.num_model_accepted;
  if (scenario_.has_twin) {
    coverage_->twin_drafts += stats.drafts.num_model_accepted;
    if (stats.drafts.num_model_accepted != stats.drafts.num_model_proposed)
      return fmt::format("{} of {} drafts of the model's twin are right", stats.drafts.num_model_accepted,
                         stats.drafts.num_model_proposed);
  }
  if (scenario_.is_hybrid()) {
    coverage_->states_right += stats.drafts.num_accepted;
    coverage_->states_wrong += stats.drafts.num_proposed - stats.drafts.num_accepted;
    if (stats.drafts.num_proposed > kStateBackTokens * stats.drafts.num_runs)
      return "more drafts than can be taken back";
  }
  coverage_->blocks_stored += stats.blocks_stored;
  coverage_->blocks_loaded += stats.blocks_loaded;
  coverage_->num_hybrids += scenario_.is_hybrid();
  coverage_->states_kept += stats.states.num_kept;
  coverage_->states_begun += stats.states.num_hits;
  coverage_->states_evicted += stats.states.num_evicted;
  if (stats.states.records_used != 0) return fmt::format("{} records are held", stats.states.records_used);
  if (engine_->config().batching != Batching::kContinuous) {
    ++coverage_->num_baselines;
    coverage_->useful_tokens += stats.useful_tokens;
    coverage_->padded_tokens += stats.padded_tokens;
  } else if (stats.padded_tokens > 0) {
    return "padding with continuous batching";
  }
  if (!overlap_ && stats.num_parked > 0) return "a draw was parked where every token is known when it is planned";
  if (reserves_all(engine_->config().on_exhaustion) && stats.num_preemptions > 0)
    return fmt::format("{} preemptions where everything is reserved", stats.num_preemptions);
  uint64_t num_finished = 0;
  for (const uint64_t count : stats.finished) num_finished += count;
  if (stats.in_system.num() != 0 || stats.num_answering != 0 || stats.in_system.departures() != num_ended_)
    return fmt::format("{} ended, {} left the system", num_ended_, stats.in_system.departures());
  uint64_t num_accepted = 0;
  for (const auto& client : clients_) {
    if (client->refused) continue;
    ++num_accepted;
    const auto record = records_->by_id.find(client->id);
    const bool has_record = record != records_->by_id.end();
    if (std::string wrong = has_record ? check_record(record->second, *client) : "no record"; !wrong.empty())
      return fmt::format("request {}: {}", client->id, wrong);
  }
  if (records_->num != num_accepted) return fmt::format("{} records of {} branches", records_->num, num_accepted);
  if (num_finished != num_ended_) return fmt::format("{} ended, the statistics say {}", num_ended_, num_finished);
  if (stats.num_running + stats.num_waiting + stats.queue_tokens != 0) return "something still runs or waits";
  if (!lost_ && stats.num_streaming != 0) return "something still streams";
  if (stats.blocks_free != stats.blocks_total) {
    return fmt::format("{} of {} blocks are free", stats.blocks_free, stats.blocks_total);
  }
  return "";
}

// While there are clients, or when there are more of them.
bool Simulation::goes_on() {
  if (!all_drained()) return true;
  if (lost_ || num_steps_before_ + engine_->stats().num_steps >= kStepsMin || num_waves_ == kWavesMax) return false;
  ++num_waves_;
  add_wave(scenario_, tick_ + 1);
  expect_clients();
  return true;
}

// Of one engine.
std::string Simulation::live() {
  std::string wrong = start();
  int idle_ticks = 0;
  while (wrong.empty() && goes_on()) {
    ++tick_;
    const uint64_t ended_before = num_ended_;
    wrong = before_tick();
    if (!wrong.empty()) break;
    if (!lost_) {
      const Result<bool> worked = engine_->tick();
      if (!worked) {
        if (worked.error().code != ErrorCode::kDeviceLost || scenario_.backend.lost_at_submit == 0) {
          wrong = worked.error().message;
          break;
        }
        lost_ = true;
        ++coverage_->device_lost;
      }
      idle_ticks = worked.ok() && (*worked || num_ended_ != ended_before) ? 0 : idle_ticks + 1;
      if (idle_ticks > kIdleTicksMax && !lost_) {
        wrong = "stuck";
        break;
      }
    }
    wrong = after_tick();
    clock_.advance_ns(static_cast<TimeNs>(random_() % (scenario_.tick_ms_max + 1)) * kMs);
  }
  return wrong.empty() ? after_all() : wrong;
}

std::string Simulation::run() {
  ++coverage_->num_runs;
  std::string wrong = live();
  while (wrong.empty() && lost_ && num_steps_before_ + engine_->stats().num_steps < kStepsMin) {
    num_steps_before_ += engine_->stats().num_steps;
    scenario_.backend.lost_at_submit = 0;
    clients_.clear();
    records_ = std::make_shared<Records>();
    num_ended_ = 0;
    lost_ = false;
    ++num_waves_;
    add_wave(scenario_, tick_ + 1);
    wrong = live();
  }
  if (wrong.empty() && num_waves_ == kWavesMax)
    wrong = fmt::format("{} waves made {} steps, expected {}", kWavesMax,
                        num_steps_before_ + engine_->stats().num_steps, kStepsMin);
  if (wrong.empty()) return "";
  return fmt::format("seed {}, {} loop, tick {}: {}", scenario_.seed, overlap_ ? "overlapped" : "plain", tick_, wrong);
}

}  // namespace

std::string simulate(const Scenario& scenario, bool overlap, Coverage* coverage) {
  return Simulation(scenario, overlap, coverage).run();
}

}  // namespace llmrt::test
