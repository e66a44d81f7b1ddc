#include "tests/sim/fleet_scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace llmrt::test::fleet {
namespace {

constexpr double kTtftTargetMs = 300, kTpotTargetMs = 40;
constexpr uint32_t kNumShared = 4, kSharedTokens = 208;

struct DeviceKind {
  const char* name;
  double step_ms, token_ms, key_ms;
  uint32_t kv_tokens, context_max, sequences_max;
};
constexpr DeviceKind kLarge = {"large", 8, 0.05, 1e-4, 16000, 4096, 32};
constexpr DeviceKind kDevices[] = {
    kLarge,
    {"fast", 5, 0.04, 1e-4, 3200, 1024, 12},   // a small pool
    {"even", 14, 0.12, 2e-4, 6000, 2048, 24},  //
    {"slow", 25, 0.5, 1e-3, 4000, 1024, 16},   // in time, if little waits there
    {"dense", 10, 0.6, 2e-4, 8000, 2048, 24},  // decodes as others, reads prompts slowly
    {"crawl", 60, 1.5, 2e-3, 3200, 1280, 8},   // never within the time per token
};

class Maker {
 public:
  explicit Maker(const FleetAsk& ask) : random_(mix(ask.seed, 77)) {
    scenario_.ask = ask;
    scenario_.ttft_target_ms = kTtftTargetMs;
    scenario_.tpot_target_ms = kTpotTargetMs;
  }
  void add_workers(uint32_t count);
  void add_worker(const DeviceKind& kind);
  void add_clients(uint32_t count, double per_s);
  void add_client(Kind kind, TimeNs arrival_ns);
  void add_faults();
  void finish();
  // Requests a second that the workers bear, about.
  double rate_per_s() const;

  FleetScenario scenario_;

  double uniform(double from = 0, double to = 1) {
    return from + (to - from) * static_cast<double>(random_() >> 11) * 0x1p-53;
  }
  uint32_t number(uint32_t from, uint32_t to) { return from + static_cast<uint32_t>(random_() % (to - from + 1)); }
  bool one_in(uint32_t n) { return random_() % n == 0; }

 private:
  Kind kind_of_next();
  uint32_t long_max() const;
  void ask_more(ClientPlan* client);

  std::mt19937_64 random_;
};

void Maker::add_worker(const DeviceKind& kind) {
  WorkerPlan& worker = scenario_.workers.emplace_back();
  worker.name = fmt::format("{}:{}", kind.name, scenario_.workers.size() - 1);
  const double scale = uniform(0.7, 1.4);
  worker.backend.step_ms = scale * kind.step_ms;
  worker.backend.token_ms = scale * kind.token_ms;
  worker.backend.key_ms = scale * kind.key_ms;
  EngineConfig& config = worker.config;
  config.context_max = kind.context_max;
  config.kv_tokens = static_cast<uint64_t>(uniform(0.8, 1.3) * kind.kv_tokens);
  config.sequences_max = kind.sequences_max;
  config.step_tokens_max = 512;
  config.reserve_output_tokens = 48;
  config.penalty_rows_max = 8;
  config.slo = {.ttft_ms = scenario_.ttft_target_ms, .tpot_ms = scenario_.tpot_target_ms};
}

void Maker::add_workers(uint32_t count) {
  add_worker(kLarge);
  while (scenario_.workers.size() < count) add_worker(kDevices[number(0, std::size(kDevices) - 1)]);
  for (size_t i = 1; i < count; ++i) {
    scenario_.workers[i].backend.batch_invariant = !one_in(3);
    if (one_in(4)) scenario_.workers[i].config.prefix_cache = PrefixCacheKind::kOff;
  }
}

// By a middling chat, with half the rows that fit.
double Maker::rate_per_s() const {
  constexpr double kPrompt = 130, kAnswer = 34;
  double sum = 0;
  for (const WorkerPlan& worker : scenario_.workers) {
    const double fit = static_cast<double>(worker.config.kv_tokens) / (kPrompt + 2 * kAnswer);
    const double rows = std::max(1.0, 0.5 * std::min<double>(worker.config.sequences_max, fit));
    const double keys_ms = worker.backend.key_ms * (kPrompt + kAnswer / 2);
    const double decode_ms = kAnswer * (worker.backend.token_ms + keys_ms + worker.backend.step_ms / rows);
    const double prefill_ms = kPrompt * (worker.backend.token_ms + worker.backend.key_ms * kPrompt / 2);
    sum += 1000 / (decode_ms + prefill_ms);
  }
  return sum;
}

uint32_t Maker::long_max() const {
  uint32_t most = 0;
  for (const WorkerPlan& worker : scenario_.workers)
    most = std::max(most, std::min(worker.config.context_max, static_cast<uint32_t>(worker.config.kv_tokens)));
  return most;
}

Kind Maker::kind_of_next() {
  const uint32_t draw = number(0, 99);
  return draw < 60 ? Kind::kChat : draw < 85 ? Kind::kShared : draw < 97 ? Kind::kLong : Kind::kHuge;
}

void Maker::add_client(Kind kind, TimeNs arrival_ns) {
  ClientPlan& client = scenario_.clients.emplace_back();
  client.kind = kind;
  client.arrival_ns = arrival_ns;
  Request& request = client.request;
  uint32_t own = number(16, 90), shared = 0;
  if (kind == Kind::kShared) {
    shared = number(1, kNumShared);
    own = number(8, 40);
  }
  if (kind == Kind::kLong) own = number(300, 800);
  if (kind == Kind::kHuge) own = std::min(number(1100, 2400), long_max() - 64);
  for (uint32_t i = 0; shared > 0 && i < kSharedTokens; ++i)
    request.prompt.push_back(static_cast<int32_t>(2 + mix(shared, i) % (kFakeVocab - 2)));
  for (uint32_t i = 0; i < own; ++i) request.prompt.push_back(static_cast<int32_t>(2 + random_() % (kFakeVocab - 2)));
  request.max_tokens = kind == Kind::kChat ? number(16, 64) : number(8, 40);
  request.stop.ignore_eos = one_in(2);
  request.sampling.seed = random_();
  if (kind == Kind::kChat && one_in(10)) request.n = number(2, 4);
  ask_more(&client);
}

// What not every worker serves, or not every sampler.
void Maker::ask_more(ClientPlan* client) {
  Request& request = client->request;
  if (one_in(12)) request.batch_invariant = true;
  if (one_in(8)) request.sampling.logprobs = static_cast<int>(number(0, 2));
  if (one_in(8)) request.sampling.temperature = 0;
  if (one_in(10)) request.sampling.presence_penalty = 0.7f;
  if (one_in(12)) request.stop.token_ids = std::vector<int32_t>{3};
  if (one_in(40) && request.prompt.size() < 100 && request.n == 1) {
    request.sampling.prompt_logprobs = true;
    request.sampling.logprobs = 1;
  }
}

// Poisson; every now and then a burst.
void Maker::add_clients(uint32_t count, double per_s) {
  double at_ms = 0;
  while (scenario_.clients.size() < count) {
    at_ms += -std::log1p(-uniform()) * 1000 / per_s;
    const uint32_t burst = one_in(40) ? number(4, 12) : 1;
    const Kind kind = kind_of_next();
    for (uint32_t i = 0; i < burst; ++i) {
      add_client(burst > 1 && kind == Kind::kHuge ? Kind::kChat : kind, static_cast<TimeNs>(at_ms * kMs));
    }
    at_ms += (burst - 1) * 1000 / per_s;  // the rate stays
  }
}

void Maker::add_faults() {
  const TimeNs end = scenario_.clients.back().arrival_ns;
  const auto sometime = [&](double from, double to) {
    return static_cast<TimeNs>(uniform(from, to) * static_cast<double>(end));
  };
  std::vector<WorkerPlan>& workers = scenario_.workers;
  const auto num = static_cast<uint32_t>(workers.size());
  // Where policies are compared the first one stays: what it alone serves would be refused from then on.
  for (uint32_t i = scenario_.ask.faults == Faults::kAll ? 0 : 1; i < num; ++i) {
    if (one_in(num < 4 ? 2 : 4)) {
      workers[i].lost_ns = sometime(0.1, 0.9);
      workers[i].is_lost_in_wait = one_in(2);
      if (one_in(2)) workers[i].back_ns = workers[i].lost_ns + sometime(0.1, 0.3);
    } else if (one_in(4)) {
      workers[i].drained_from_ns = sometime(0.1, 0.5);
      workers[i].drained_to_ns = sometime(0.5, 0.9);
    } else if (scenario_.ask.faults == Faults::kAll && one_in(3)) {
      workers[i].fails_from_ns = sometime(0.1, 0.6);
      workers[i].fails_to_ns = workers[i].fails_from_ns + sometime(0.1, 0.3);
    }
  }
  for (ClientPlan& client : scenario_.clients) {
    if (one_in(20)) client.cancel_ns = client.arrival_ns + number(0, 800) * kMs;
    if (one_in(30)) client.cancel_after_tokens = static_cast<int>(number(1, 12));
    if (one_in(30)) {
      client.pause_ns = client.arrival_ns + number(0, 400) * kMs;
      client.resume_ns = client.pause_ns + number(10, 300) * kMs;
    }
  }
}

void Maker::finish() {
  std::ranges::stable_sort(scenario_.clients, {}, &ClientPlan::arrival_ns);
  const auto tokenizer = make_fake_tokenizer();
  for (ClientPlan& client : scenario_.clients) {
    for (uint32_t branch = 0; branch < client.request.n; ++branch) {
      Request one = client.request;
      one.n = 1;
      one.sampling.branch = branch;
      client.alone.push_back(answer_alone(one, *tokenizer, 0));
    }
  }
}

}  // namespace

FleetScenario make_fleet_scenario(const FleetAsk& ask) {
  Maker maker(ask);
  const uint32_t drawn = maker.number(2, 8);
  maker.add_workers(ask.num_workers > 0 ? ask.num_workers : drawn);
  maker.add_clients(ask.clients_each * static_cast<uint32_t>(maker.scenario_.workers.size()),
                    ask.load * maker.rate_per_s());
  if (ask.has_faults()) maker.add_faults();
  maker.finish();
  return std::move(maker.scenario_);
}

FleetScenario make_long_scenario(uint64_t seed) {
  Maker maker({.seed = seed});
  maker.add_worker(kLarge);
  for (int i = 0; i < 3; ++i) maker.add_worker(kDevices[maker.number(1, 3)]);
  const double per_s = 0.9 * maker.rate_per_s();
  for (double at_ms = 0; maker.scenario_.clients.size() < 300; at_ms += 1000 / per_s)
    maker.add_client(Kind::kChat, static_cast<TimeNs>(at_ms * kMs));
  const TimeNs end = maker.scenario_.clients.back().arrival_ns;
  for (const int tenths : {3, 6, 9}) maker.add_client(Kind::kHuge, end * tenths / 10);
  maker.finish();
  return std::move(maker.scenario_);
}

}  // namespace llmrt::test::fleet
