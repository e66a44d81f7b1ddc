// Preemption through the engine, on the backend of hashes with made-up times: which kind is chosen and what it saves;
// that nobody yields for ever; and that a full pool is answered as the policy says.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <random>

#include "core/engine/engine.h"
#include "core/engine/pool_shapes.h"
#include "tests/fakes/fake_backend.h"
#include "tests/fakes/sim_clock.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

struct Sink final : EventSink {
  void on_events(std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events) {
      if (event.token >= 0) tokens.push_back(event.token);
      if (event.finish != FinishReason::kNone) finish = event.finish;
      if (event.error) error = event.error;
    }
  }
  std::vector<int32_t> tokens;
  FinishReason finish = FinishReason::kNone;
  std::optional<Error> error;
};

struct Trace {
  EngineConfig config;
  FakeBackendConfig backend;
  std::vector<Request> requests;

  explicit Trace(OnExhaustion policy) {
    config.context_max = 1000;
    config.sequences_max = 16;
    config.step_tokens_max = 256;
    config.chunk_tokens = 64;
    config.reserve_output_tokens = 0;
    config.watermark = 0;
    config.audit_steps = 1;
    config.prefix_cache = PrefixCacheKind::kOff;
    config.kv_tokens = 100 * 16;
    config.kv_host_bytes = 500 * PoolShapes(make_fake_model()->config, config).bytes_block();
    config.on_exhaustion = policy;
  }
  void add(uint32_t num_prompt, uint32_t max_tokens) {
    Request request;
    for (uint32_t i = 0; i < num_prompt; ++i)
      request.prompt.push_back(static_cast<int32_t>((requests.size() * 7 + i * i + 3) % kFakeVocab));
    request.max_tokens = max_tokens;
    request.stop.ignore_eos = true;
    requests.push_back(std::move(request));
  }
  // Runs all to their ends; `sinks` by request.
  EngineStats run(std::vector<std::shared_ptr<Sink>>* sinks) const {
    SimClock clock;
    auto engine = Engine::create(config, make_fake_model(), make_fake_tokenizer(),
                                 std::make_unique<FakeBackend>(backend), &clock, {});
    REQUIRE(engine.ok());
    for (Request request : requests) {
      request.sink = sinks->emplace_back(std::make_shared<Sink>());
      REQUIRE((*engine)->submit(std::move(request)).ok());
    }
    for (bool worked = true; worked;) {
      auto tick = (*engine)->tick();
      REQUIRE(tick.ok());
      worked = *tick;
    }
    return (*engine)->stats();
  }
};

// Short requests, whose keys and values are cheaper to compute again, beside long ones. The fixed part of a step is
// small, so that what is done counts and not how many steps it takes.
Trace mixed_trace(OnExhaustion policy, double move_ms) {
  Trace trace(policy);
  trace.backend = {.token_ms = 0.05, .key_ms = 5e-4, .move_ms = move_ms};
  std::mt19937_64 random(5);
  for (int i = 0; i < 60; ++i) {
    const bool is_long = i % 4 == 0;
    trace.add(is_long ? 300 + static_cast<uint32_t>(random() % 300) : 20 + static_cast<uint32_t>(random() % 40),
              60 + static_cast<uint32_t>(random() % 60));
  }
  return trace;
}

}  // namespace

TEST_CASE("the chosen kind of preemption costs at most a tenth more than the better one") {
  // From a bus that makes swapping nearly free to one that is never worth it.
  const double move_ms = GENERATE(0.01, 0.5, 1.0, 1.5, 3.0, 30.0);
  EngineStats stats[3];
  std::vector<std::shared_ptr<Sink>> sinks[3];
  const OnExhaustion policies[] = {OnExhaustion::kSwap, OnExhaustion::kRecompute, OnExhaustion::kPreempt};
  for (int i = 0; i < 3; ++i) {
    stats[i] = mixed_trace(policies[i], move_ms).run(&sinks[i]);
    for (size_t r = 0; r < sinks[i].size(); ++r) {
      CHECK(sinks[i][r]->finish == FinishReason::kLength);
      CHECK(sinks[i][r]->tokens == sinks[0][r]->tokens);
    }
    CHECK(stats[i].num_preemptions > 10);
  }
  const auto& [swap, recompute, chosen] = stats;
  CHECK(swap.num_swaps == swap.num_preemptions);
  CHECK(recompute.num_swaps == 0);
  INFO("move " << move_ms << " ms: swap " << swap.device_ms << " ms, recompute " << recompute.device_ms
               << " ms, chosen " << chosen.device_ms << " ms with " << chosen.num_swaps << " swaps of "
               << chosen.num_preemptions);
  CHECK(chosen.device_ms <= 1.1 * std::min(swap.device_ms, recompute.device_ms));
  if (move_ms == 0.01) CHECK(chosen.num_swaps == chosen.num_preemptions);
  if (move_ms == 30.0) CHECK(chosen.num_swaps == 0);
  if (move_ms == 1.0) {  // both, on one trace
    CHECK(chosen.num_swaps > 0);
    CHECK(chosen.num_swaps < chosen.num_preemptions);
  }
}

TEST_CASE("what was swapped is loaded, not computed again") {
  Trace trace(OnExhaustion::kSwap);
  // Two that fill the pool of 100 blocks, and go on.
  trace.add(700, 200);
  trace.add(700, 200);
  std::vector<std::shared_ptr<Sink>> sinks;
  const EngineStats stats = trace.run(&sinks);
  CHECK(stats.num_preemptions == 1);
  CHECK(stats.blocks_stored > 0);
  CHECK(stats.blocks_loaded > 0);
  CHECK(stats.blocks_loaded <= stats.blocks_stored);
}

TEST_CASE("under hard reservation nobody yields, and a full pool is answered by waiting or at once") {
  const OnExhaustion policy = GENERATE(OnExhaustion::kQueue, OnExhaustion::kReject);
  Trace trace(policy);
  for (int i = 0; i < 8; ++i) trace.add(300, 150);  // 29 blocks each: three fit
  std::vector<std::shared_ptr<Sink>> sinks;
  const EngineStats stats = trace.run(&sinks);
  CHECK(stats.num_preemptions == 0);
  int num_answered = 0, num_refused = 0;
  for (const auto& sink : sinks) {
    num_answered += sink->finish == FinishReason::kLength && sink->tokens.size() == 150;
    if (sink->finish != FinishReason::kError) continue;
    ++num_refused;
    CHECK(sink->tokens.empty());
    CHECK(sink->error->code == ErrorCode::kOverloaded);
    CHECK(sink->error->message == "no room now: 29 KV blocks of 16 are needed, 41 are free, 29 of them kept");
  }
  CHECK(num_answered == (policy == OnExhaustion::kQueue ? 8 : 3));
  CHECK(num_refused == (policy == OnExhaustion::kQueue ? 0 : 5));
}

TEST_CASE("a request that yielded twice is spared") {
  // Four requests in a pool for about three: without protection the newest would yield every time.
  Trace trace(OnExhaustion::kRecompute);
  trace.config.kv_tokens = 40 * 16;
  for (int i = 0; i < 4; ++i) trace.add(100, 400);
  SimClock clock;
  std::vector<std::shared_ptr<Sink>> sinks;
  std::ostringstream lines;
  auto engine = Engine::create(trace.config, make_fake_model(), make_fake_tokenizer(),
                               std::make_unique<FakeBackend>(trace.backend), &clock, {});
  REQUIRE(engine.ok());
  (*engine)->set_log(stream_log(lines, LogLevel::kInfo));
  for (Request request : trace.requests) {
    request.sink = sinks.emplace_back(std::make_shared<Sink>());
    REQUIRE((*engine)->submit(std::move(request)).ok());
  }
  for (bool worked = true; worked;) worked = *(*engine)->tick();
  for (const auto& sink : sinks) CHECK(sink->finish == FinishReason::kLength);
  const uint64_t num_preemptions = (*engine)->stats().num_preemptions;
  CHECK(num_preemptions > 4);
  // The times of one request are never more than one ahead of what sharing them out would give.
  uint64_t most = 0;
  for (uint64_t times = 1; times <= num_preemptions; ++times)
    if (lines.str().find("(time " + std::to_string(times) + ")") != std::string::npos) most = times;
  INFO(lines.str());
  CHECK(most <= num_preemptions / 4 + 2);
}
