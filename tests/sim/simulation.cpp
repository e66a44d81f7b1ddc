#include "tests/sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <random>

#include "core/base/checked_math.h"
#include "core/engine/engine.h"
#include "tests/fakes/late_mask.h"
#include "tests/fakes/sim_clock.h"

namespace llmrt::test {
namespace {

constexpr int kIdleTicksMax = 1000;   // without any event: it is stuck
constexpr uint64_t kStepsMin = 200;   // of a run, on as many engines as it takes where devices are lost
constexpr uint32_t kWavesMax = 5000;  // where most requests are refused

template <typename T>
bool is_prefix(const T& part, const T& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

// One branch of a request, as its receiver sees it.
struct Client {
  const ClientPlan* plan = nullptr;
  uint32_t branch = 0;
  Engine* engine = nullptr;
  const Tokenizer* tokenizer = nullptr;
  FakeAnswer alone;

  bool arrived = false, refused = false, drained = false, cancelled = false;
  RequestId id = 0;
  TimeNs deadline_ns = 0, start_by_ns = 0;  // 0 = none; of the request or the server, whichever is first
  uint32_t arrived_at = 0, ended_at = 0;
  uint64_t num_events = 0, num_prompt_events = 0;
  uint32_t cached_tokens = 0;
  FakeAnswer got;
  std::optional<Error> error;
  std::string wrong;              // what broke first
  std::vector<Client*> together;  // with beam search: all branches, which are cancelled together

  bool ended() const { return got.finish != FinishReason::kNone; }
  void begin();
  void on_event(const TokenEvent& event);
  void take(const TokenEvent& event);
  void take_prompt_token(const TokenEvent& event);
  void cancel() {
    cancelled = true;
    for (Client* other : together) other->cancelled = true;
    engine->cancel(id);
  }
  std::string check_end(TimeNs now, const MemoryPlan& pool) const;
  std::string check_error(const MemoryPlan& pool) const;
};

struct Sink final : EventSink {
  std::vector<Client*> branches;
  void on_events(std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events) branches.at(event.branch)->on_event(event);
  }
};

// What the answer has begun with is as if it had been told.
void Client::begin() {
  got.tokens = plan->request.begun;
  for (const int32_t token : got.tokens) got.text += tokenizer->token_bytes(token);
  got.logprobs.assign(alone.logprobs.begin(), alone.logprobs.begin() + static_cast<ptrdiff_t>(std::min(
                                                                           got.tokens.size(), alone.logprobs.size())));
}
struct Records final : TraceSink {
  std::unordered_map<RequestId, RequestTrace> by_id;
  uint64_t num = 0;
  void put(RequestTrace trace) override {
    ++num;
    by_id[trace.id] = std::move(trace);
  }
};

void Client::on_event(const TokenEvent& event) {
  if (event.request_id != id) wrong = fmt::format("an event of request {}", event.request_id);
  if (wrong.empty()) take(event);
  if (++num_events == static_cast<uint64_t>(plan->cancel_after_events)) cancel();
}

void Client::take(const TokenEvent& event) {
  if (ended()) {
    wrong = "an event after the end";
    return;
  }
  got.finish = event.finish;
  cached_tokens = event.cached_tokens;
  error = event.error;
  if (event.is_prompt) {
    take_prompt_token(event);
    return;
  }
  if (event.token < 0) {
    if (event.finish == FinishReason::kNone) wrong = "an event that says nothing";
    return;
  }
  got.tokens.push_back(event.token);
  got.text += tokenizer->token_bytes(event.token);
  if (event.has_logprob) got.logprobs.push_back(event.logprob);
  if (event.draw.has_value() != plan->request.sampling.tell_draws)
    wrong = "a draw that is told, or is not, against the request";
  if (event.hold_bytes > got.text.size() || event.cut_bytes > got.text.size()) {
    wrong = "more bytes held or cut than there are";
    return;
  }
  got.text.erase(got.text.size() - event.cut_bytes);
  const std::string shown = got.text.substr(0, got.text.size() - event.hold_bytes);
  if (!is_prefix(got.tokens, alone.tokens)) {
    wrong = fmt::format("token {} is {}, alone it is {}", got.tokens.size() - 1, event.token,
                        got.tokens.size() <= alone.tokens.size() ? alone.tokens[got.tokens.size() - 1] : -1);
  } else if (!is_prefix(shown, alone.text)) {
    wrong = fmt::format("shown text '{}', alone it is '{}'", shown, alone.text);
  }
}

void Client::take_prompt_token(const TokenEvent& event) {
  const std::vector<int32_t>& prompt = plan->request.prompt;
  if (num_prompt_events >= prompt.size() || event.token != prompt[num_prompt_events]) {
    wrong = fmt::format("prompt token {} is not its own", num_prompt_events);
  } else if (event.has_logprob != (num_prompt_events > 0)) {
    wrong = "each prompt token but the first has a log-probability";
  }
  ++num_prompt_events;
  if (event.has_logprob) got.prompt_logprobs.push_back(event.logprob);
  if (!is_prefix(got.prompt_logprobs, alone.prompt_logprobs)) wrong = "a prompt log-probability differs from alone";
}

std::string Client::check_error(const MemoryPlan& pool) const {
  switch (error->code) {
    case ErrorCode::kNotFinite:
    case ErrorCode::kEmptySupport:
      return alone.finish == FinishReason::kError && got.tokens == alone.tokens
                 ? ""
                 : "a token could not be drawn, alone it can";
    case ErrorCode::kPoolExhausted: {
      const size_t num_output = plan->request.beam ? plan->request.max_tokens : got.tokens.size();
      const uint32_t positions = static_cast<uint32_t>(plan->request.prompt.size() + num_output);
      return ceil_div(positions, pool.block_tokens) > pool.num_blocks ? "" : "exhausted a pool that could hold it";
    }
    case ErrorCode::kOverloaded:
      return got.tokens.size() == plan->request.begun.size() ? "" : "overloaded after it ran";
    case ErrorCode::kDeviceLost:
      return "";
    default:
      return fmt::format("ended with {}", error->message);
  }
}

std::string Client::check_end(TimeNs now, const MemoryPlan& pool) const {
  switch (got.finish) {
    case FinishReason::kCancelled:
      return cancelled ? "" : "ended as cancelled, and nobody had";
    case FinishReason::kTimeout: {
      if (!error || error->code != ErrorCode::kTimeout) return "timed out without being told which limit it passed";
      const bool in_queue = got.tokens.size() == plan->request.begun.size() && start_by_ns != 0 && start_by_ns <= now;
      return in_queue || (deadline_ns != 0 && deadline_ns <= now) ? "" : "timed out before its deadline";
    }
    case FinishReason::kError:
      return error ? check_error(pool) : "ended with an error that is not there";
    default:
      break;
  }
  if (error) return "an error beside another finish";
  if (got.finish != alone.finish) {
    return fmt::format("ended by {}, alone by {}", finish_reason_name(got.finish), finish_reason_name(alone.finish));
  }
  if (got.tokens != alone.tokens) return "fewer tokens than alone";
  if (got.text != alone.text) return fmt::format("text '{}', alone '{}'", got.text, alone.text);
  if (got.logprobs != alone.logprobs) return "log-probabilities differ from alone";
  if (got.prompt_logprobs != alone.prompt_logprobs) return "prompt log-probabilities differ from alone";
  return "";
}

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
  std::string refusal_is_right(const Client& client, const Error& error) const;
  std::string after_tick();
  std::string check_cached(const Client& client) const;
  std::string after_all();
  std::string check_record(const Client& client) const;
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
  auto engine = Engine::create(config, make_fake_model(), tokenizer_, std::make_unique<FakeBackend>(scenario_.backend),
                               &clock_, {});
  if (!engine) return "the engine did not start: " + engine.error().message;
  engine_ = std::move(*engine);
  engine_->set_trace(records_);
  expect_clients();
  return "";
}

void Simulation::expect_clients() {
  for (; num_expected_ < scenario_.clients.size(); ++num_expected_) {
    const ClientPlan& plan = scenario_.clients[num_expected_];
    std::vector<FakeAnswer> searched;
    if (plan.request.beam) searched = beams_alone(plan.request, *tokenizer_, scenario_.backend.poison);
    for (uint32_t branch = 0; branch < plan.request.n; ++branch) {
      auto client = std::make_unique<Client>();
      client->plan = &plan;
      client->branch = branch;
      client->engine = engine_.get();
      client->tokenizer = tokenizer_.get();
      Request alone = plan.request;
      alone.n = 1;
      alone.sampling.branch += branch;
      client->alone = plan.request.beam ? searched[branch] : answer_alone(alone, *tokenizer_, scenario_.backend.poison);
      client->begin();
      clients_.push_back(std::move(client));
    }
  }
}

std::string Simulation::refusal_is_right(const Client& client, const Error& error) const {
  const EngineConfig& config = engine_->config();
  const Request& request = client.plan->request;
  const size_t num_tokens = request.prompt.size() + request.max_tokens;
  switch (error.code) {
    case ErrorCode::kContextLength:
      return num_tokens > config.context_max ? "" : "refused though the context holds it";
    case ErrorCode::kNeverFits: {
      const size_t output = reserves_all(config.on_exhaustion) ? request.max_tokens : config.reserve_output_tokens;
      const size_t reserved = std::min(request.prompt.size() + request.begun.size() + output, num_tokens - 1);
      const MemoryPlan& pool = engine_->memory_plan();
      return ceil_div<size_t>(reserved, pool.block_tokens) > pool.num_blocks ? "" : "refused though it fits";
    }
    case ErrorCode::kUnsupported:
      return "unsupported, and why?";
    case ErrorCode::kOverloaded:
      return config.queue_tokens_max < 1000 || config.queue_branches_max < 1000 ||
                     config.queue_bytes_max < 1000 * kBranchBytes || config.ttft_target_ms > 0
                 ? ""
                 : "overloaded with an endless queue";
    case ErrorCode::kDeviceLost:
      return lost_ ? "" : "the device is there";
    default:
      return error.message;
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
  return refusal_is_right(*clients_[first], id.error());
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
    if (client->ended() && tick_ - client->ended_at >= client->plan->drain_after_ticks) {
      client->drained = true;
      engine_->drained(client->id);
    }
  }
  return "";
}

// Only what somebody else with the same salt and adapter has asked or got can be in the cache when a request begins.
std::string Simulation::check_cached(const Client& client) const {
  if (client.cached_tokens == 0) return "";
  const Request& own = client.plan->request;
  if (engine_->config().prefix_cache == PrefixCacheKind::kOff) return "cached tokens without a cache";
  if (own.sampling.prompt_logprobs && own.prompt.size() > 1) return "prompt tokens that are scored were not computed";
  std::vector<int32_t> wanted = own.prompt;
  wanted.insert(wanted.end(), own.begun.begin(), own.begun.end());
  if (client.cached_tokens >= wanted.size()) return "no token of the prompt was computed";
  if (own.cache_salt.empty() && client.cached_tokens % engine_->memory_plan().block_tokens != 0)
    return fmt::format("{} tokens cached without a salt: a part of a block", client.cached_tokens);
  size_t known = 0;
  for (const auto& other : clients_) {
    const Request& theirs = other->plan->request;
    if (other.get() == &client || !other->arrived || theirs.cache_salt != own.cache_salt ||
        theirs.adapter_id != own.adapter_id)
      continue;
    std::vector<int32_t> text = theirs.prompt;
    text.insert(text.end(), other->alone.tokens.begin(), other->alone.tokens.end());
    size_t common = static_cast<size_t>(std::ranges::mismatch(wanted, text).in1 - wanted.begin());
    if (theirs.beam && common >= theirs.prompt.size()) common += theirs.max_tokens;  // beams that are not its answer
    known = std::max(known, common);
  }
  return client.cached_tokens <= known ? ""
                                       : fmt::format("{} tokens cached, others know {}", client.cached_tokens, known);
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
    if (std::string wrong = check_cached(*client); !wrong.empty()) return tell(wrong);
  }
  return "";
}

// One record of each branch that was accepted, which says what its client has seen.
std::string Simulation::check_record(const Client& client) const {
  const auto it = records_->by_id.find(client.id);
  if (it == records_->by_id.end()) return "no record";
  const RequestTrace& record = it->second;
  if (record.finish != client.got.finish)
    return fmt::format("its record ends by {}", finish_reason_name(record.finish));
  if (record.prompt_tokens != client.plan->request.prompt.size()) return "its record has another prompt";
  if (record.output_tokens != client.got.tokens.size())
    return fmt::format("{} tokens, its record says {}", client.got.tokens.size(), record.output_tokens);
  for (const auto& ms : {record.queue_ms, record.prefill_ms, record.decode_ms, record.ttft_ms, record.tpot_ms})
    if (ms && *ms < 0) return "its record has a time below 0";
  if ((record.kv_blocks_peak > 0) != (record.reserved_kv_tokens > 0)) return "its record ran without blocks";
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
  coverage_->blocks_stored += stats.blocks_stored;
  coverage_->blocks_loaded += stats.blocks_loaded;
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
    if (std::string wrong = check_record(*client); !wrong.empty())
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
