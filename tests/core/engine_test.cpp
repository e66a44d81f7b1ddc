// What the engine tells, beside the tokens that the simulation judges: refusals, log lines, its own end. Method: the
// backend of hashes, requests by hand, a log that writes into a string.

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "core/adapter/adapter_image.h"
#include "core/backend/forwarding.h"
#include "core/engine/engine.h"
#include "tests/fakes/deny_list.h"
#include "tests/fakes/fake_backend.h"
#include "tests/fakes/sim_clock.h"

using namespace llmrt;
using namespace llmrt::test;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Sink final : EventSink {
  void on_events(std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events) {
      if (event.token >= 0 && !event.is_prompt) tokens.push_back(event.token);
      if (event.finish != FinishReason::kNone) finish = event.finish;
      if (event.error) error = event.error;
    }
  }
  FinishReason finish = FinishReason::kNone;
  std::optional<Error> error;
  std::vector<int32_t> tokens;
};

struct Running {
  explicit Running(FakeBackendConfig backend = {}) {
    EngineConfig config;
    config.context_max = 64;
    config.kv_tokens = 4 * 16;
    config.reserve_output_tokens = 0;
    config.watermark = 0;
    config.audit_steps = 1;
    auto created = Engine::create(config, make_fake_model(), make_fake_tokenizer(),
                                  std::make_unique<FakeBackend>(backend), &clock, {});
    REQUIRE(created.ok());
    engine = std::move(*created);
    engine->set_log(stream_log(lines, LogLevel::kInfo));
  }
  Result<RequestId> submit(size_t num_prompt, uint32_t max_tokens,
                           RequestClass request_class = RequestClass::kInteractive, int logprobs = -1) {
    Request request;
    request.prompt.assign(num_prompt, 5 + static_cast<int32_t>(sinks.size()));  // each its own text
    request.max_tokens = max_tokens;
    request.stop.ignore_eos = true;
    request.request_class = request_class;
    request.sampling.logprobs = logprobs;
    request.sink = sinks.emplace_back(std::make_shared<Sink>());
    return engine->submit(std::move(request));
  }
  void run() {
    for (bool worked = true; worked;) {
      auto tick = engine->tick();
      REQUIRE(tick.ok());
      worked = *tick;
    }
  }
  SimClock clock;
  std::ostringstream lines;
  std::vector<std::shared_ptr<Sink>> sinks;
  std::unique_ptr<Engine> engine;
};

}  // namespace

TEST_CASE("every preemption leaves a line that says who, what was lost and for whom") {
  Running run;
  // Each begins in 2 blocks of the 4; both need a third.
  REQUIRE(run.submit(30, 20).ok());
  REQUIRE(run.submit(30, 20).ok());
  run.run();
  for (const auto& sink : run.sinks) CHECK(sink->finish == FinishReason::kLength);
  CHECK(run.engine->stats().num_preemptions == 1);
  CHECK_THAT(run.lines.str(), ContainsSubstring("request 2 preempted (time 1): 32 computed tokens and 2 blocks given "
                                                "back, to be recomputed (swap 0.0 ms, recompute "));
  CHECK_THAT(run.lines.str(), ContainsSubstring(" ms); request 1 needs a block\n"));
}

TEST_CASE("a log-probability above 0 is an error of its request and not an answer") {
  for (const float wrong : {0.0f, 6.5f, std::numeric_limits<float>::quiet_NaN()}) {
    Running run({.best_logprob = wrong});
    REQUIRE(run.submit(8, 4, RequestClass::kInteractive, 1).ok());
    REQUIRE(run.submit(8, 4).ok());
    run.run();
    CHECK(run.sinks[1]->finish == FinishReason::kLength);
    if (wrong == 0) {
      CHECK(run.sinks[0]->finish == FinishReason::kLength);
      continue;
    }
    REQUIRE(run.sinks[0]->finish == FinishReason::kError);
    CHECK(run.sinks[0]->error->code == ErrorCode::kInternal);
    CHECK_THAT(run.sinks[0]->error->message, ContainsSubstring("expected at most 0, found "));
  }
}

// Steps take 0.11 ms, and the clock moves only as the engine sleeps.
TEST_CASE("a request that comes while a step runs beside batch is in the next one") {
  Running run({.token_ms = 0.001, .key_ms = 0});
  REQUIRE(run.submit(4, 28, RequestClass::kBatch).ok());
  for (int i = 0; i < 12; ++i) REQUIRE(run.engine->tick().ok());
  REQUIRE(run.submit(4, 12).ok());
  for (int i = 0; i < 4; ++i) REQUIRE(run.engine->tick().ok());
  const auto steps = [&] { return run.engine->stats().num_steps; };
  const uint64_t before = steps();
  const TimeNs now = run.clock.now_ns();
  // Too early for the next: nothing is planned, so nothing is taken either.
  REQUIRE(run.engine->tick(now + 50'000).value());
  CHECK(run.clock.now_ns() == now + 50'000);
  CHECK(steps() == before);
  REQUIRE(run.submit(4, 12).ok());
  REQUIRE(run.engine->tick().value());
  CHECK(run.clock.now_ns() > now + 80'000);
  CHECK(steps() == before + 1);
  CHECK(run.engine->stats().num_running == 3);
  run.run();
  for (const auto& sink : run.sinks) CHECK(sink->finish == FinishReason::kLength);
}

TEST_CASE("a tick that took a step's result has worked, even when there is nothing to tell") {
  // Beams are never planned ahead and tell nothing before the end: an engine that went to sleep after each of their
  // steps would take 50 ms for it.
  Running run;
  Request request;
  request.prompt = {5, 6, 7};
  request.n = 2;
  request.beam = BeamParams{};
  request.max_tokens = 12;
  request.stop.ignore_eos = true;
  request.sink = run.sinks.emplace_back(std::make_shared<Sink>());
  REQUIRE(run.engine->submit(std::move(request)).ok());
  for (int i = 0; i < 100 && run.sinks[0]->finish == FinishReason::kNone; ++i) {
    const auto worked = run.engine->tick();
    REQUIRE(worked.ok());
    CHECK(*worked);
  }
  CHECK(run.sinks[0]->finish == FinishReason::kLength);
}

TEST_CASE("an engine goes without copies in f16 whose memory is gone, and not on after other errors") {
  struct Copying final : ForwardingBackend {
    explicit Copying(ErrorCode code)
        : ForwardingBackend(std::make_unique<FakeBackend>(FakeBackendConfig())), code(code), caps_(inner().caps()) {
      caps_.f16_copies_rows_min = 65;
    }
    const Caps& caps() const override { return caps_; }
    Status add_f16_copies(uint64_t bytes_max) override {
      asked.push_back(bytes_max);
      return bytes_max > 0 ? Status(make_error(code, "{} bytes of copies", bytes_max)) : Status{};
    }
    ErrorCode code;
    std::vector<uint64_t> asked;

   private:
    Caps caps_;
  };
  EngineConfig config;
  config.context_max = 64;
  SimClock clock;
  for (ErrorCode code : {ErrorCode::kOutOfMemory, ErrorCode::kDeviceLost}) {
    const bool goes_on = code == ErrorCode::kOutOfMemory;
    auto backend = std::make_unique<Copying>(code);
    Copying* seen = backend.get();
    auto engine = Engine::create(config, make_fake_model(), nullptr, std::move(backend), &clock, {});
    REQUIRE(engine.ok() == goes_on);
    if (!goes_on) {
      CHECK(engine.error().code == code);
      continue;
    }
    REQUIRE(seen->asked.size() == 2);
    CHECK(seen->asked[0] > 0);
    CHECK(seen->asked[1] == 0);
  }
}

TEST_CASE("an engine refuses by name what layers ask for and it cannot do") {
  const auto refusal = [](const std::function<void(std::vector<LayerSpec>&)>& change) {
    auto model = std::make_shared<Model>(*make_fake_model());
    std::vector<LayerSpec>& layers = model->config.layers;
    layers.push_back(layers.front());
    model->layers.resize(2);
    change(layers);
    assign_cache_groups(layers);
    SimClock clock;
    EngineConfig config;
    config.context_max = 64;
    const auto engine = Engine::create(config, model, make_fake_tokenizer(),
                                       std::make_unique<FakeBackend>(FakeBackendConfig()), &clock, {});
    if (engine) return std::string();
    CHECK(engine.error().code == ErrorCode::kUnsupported);
    return engine.error().message;
  };
  CHECK(refusal([](auto&) {}).empty());
  CHECK(refusal([](auto& layers) { layers[1].ffn_width = 64; }).empty());
  CHECK_THAT(refusal([](auto& layers) { layers[1].attention = AttentionKind::kLatent; }),
             ContainsSubstring("layer 1: expected one row of a latent's size in the cache, found heads of another"));
  CHECK_THAT(refusal([](auto& layers) {
               layers[1].attention = AttentionKind::kLatent;
               layers[1].latent = {.rank = layers[1].head_dim / 2, .rope_dim = layers[1].head_dim / 2};
               layers[1].num_kv_heads = 1;
             }),
             ContainsSubstring("layer 1: fake:0: expected a device with kernels for latent attention"));
  CHECK_THAT(refusal([](auto& layers) { layers[0].feed_forward = FeedForwardKind::kBoth; }),
             ContainsSubstring("layer 0: expected a dense feed-forward part or experts, found experts beside"));
  CHECK_THAT(refusal([](auto& layers) { layers[1].head_dim = 4096; }),
             ContainsSubstring("layer 1: fake:0: expected heads of at most 256 numbers, found 4096"));
}

TEST_CASE("an engine serves layers of which some have a window") {
  auto model = std::make_shared<Model>(*make_fake_model());
  std::vector<LayerSpec>& layers = model->config.layers;
  layers.push_back(layers.front());
  model->layers.resize(2);
  layers[0].attention = AttentionKind::kWindow;
  layers[0].window = 20;
  assign_cache_groups(layers);
  FakeBackendConfig backend;
  backend.groups = {{}, {.window = 20}};
  EngineConfig config;
  config.context_max = 160;
  config.sequences_max = 2;
  config.step_tokens_max = 32;
  config.kv_tokens = 40 * 16;
  config.kv_host_bytes = 1 << 20;
  config.audit_steps = 1;
  SimClock clock;
  auto engine =
      Engine::create(config, model, make_fake_tokenizer(), std::make_unique<FakeBackend>(backend), &clock, {});
  REQUIRE(engine.ok());
  const MemoryPlan& plan = (*engine)->memory_plan();
  REQUIRE(plan.pools.size() == 2);
  CHECK(plan.pools[0].num_blocks == 40);
  CHECK(plan.pools[1].num_blocks == 2 * 3 + 2 + 10);  // two windows, a step's chunks, a quarter of the first pool

  // The second request begins as the first did.
  const auto run = [&](int32_t last_of_prompt) {
    Request request;
    request.prompt.assign(60, 7);
    request.prompt.push_back(last_of_prompt);
    request.max_tokens = 90;
    request.stop.ignore_eos = true;
    const FakeAnswer alone = answer_alone(request, *make_fake_tokenizer(), 0, backend.groups);
    auto sink = std::make_shared<Sink>();
    request.sink = sink;
    REQUIRE((*engine)->submit(request).ok());
    for (bool worked = true; worked;) {
      auto tick = (*engine)->tick();
      REQUIRE(tick.ok());
      worked = *tick;
    }
    CHECK(sink->tokens == alone.tokens);
  };
  run(3);
  const uint64_t before = (*engine)->stats().prefix_hits;
  run(4);
  CHECK((*engine)->stats().prefix_hits == before + 48);
}

TEST_CASE("an engine's room for a step's samples counts the tokenizer's end tokens") {
  struct Stating final : ForwardingBackend {
    explicit Stating(uint64_t* words)
        : ForwardingBackend(std::make_unique<FakeBackend>(FakeBackendConfig())), words(words) {}
    Status create_state(const StateConfig& config) override {
      *words = config.sample_words_max;
      return inner().create_state(config);
    }
    uint64_t* words;
  };
  EngineConfig config;
  config.context_max = 64;
  config.sample_rows_max = 12;
  SimClock clock;
  const auto words_with = [&](std::shared_ptr<const Tokenizer> tokenizer) {
    uint64_t words = 0;
    auto engine =
        Engine::create(config, make_fake_model(), std::move(tokenizer), std::make_unique<Stating>(&words), &clock, {});
    REQUIRE(engine.ok());
    return words;
  };
  const uint64_t num_ends = make_fake_tokenizer()->end_of_generation_ids().size();
  REQUIRE(num_ends > 0);
  CHECK(words_with(make_fake_tokenizer()) == words_with(nullptr) + 2 * 12 * num_ends);
}

TEST_CASE("an engine that has nothing to do prepares every step size, one at a time") {
  struct Preparing final : ForwardingBackend {
    using ForwardingBackend::ForwardingBackend;
    Status prepare(const SealedList& sealed) override {
      const OpList& list = sealed;
      sizes[list.name + (list.decode_only ? ", decode only" : "")].push_back(list.num_tokens);
      return inner().prepare(sealed);
    }
    std::map<std::string, std::vector<uint32_t>> sizes;
  };
  auto backend = std::make_unique<Preparing>(std::make_unique<FakeBackend>(FakeBackendConfig()));
  Preparing* seen = backend.get();
  EngineConfig config;
  config.context_max = 64;
  config.sequences_max = config.sample_rows_max = 12;
  config.step_tokens_max = 70;
  SimClock clock;
  auto engine = Engine::create(config, make_fake_model(), nullptr, std::move(backend), &clock, {});
  REQUIRE(engine.ok());
  seen->sizes.clear();
  for (int i = 0; i < 16; ++i) {
    Result<bool> prepared = (*engine)->prepare_next();
    REQUIRE(prepared.ok());
    CHECK(*prepared);
  }
  CHECK(!*(*engine)->prepare_next());
  CHECK(seen->sizes["forward, decode only"] == std::vector<uint32_t>{1, 2, 3, 4, 5, 6, 7, 8, 16, 24, 32, 40, 48});
  CHECK(seen->sizes["forward"] == std::vector<uint32_t>{5, 6, 7, 8, 16, 24, 32, 40, 48, 56, 64, 70});
  CHECK(seen->sizes["sample"].size() == 9);
}

TEST_CASE("a request that can never run is refused with both numbers, and its sink is not called") {
  Running run;
  const auto too_long = run.submit(60, 5);
  REQUIRE_FALSE(too_long.ok());
  CHECK(too_long.error().code == ErrorCode::kContextLength);
  CHECK_THAT(too_long.error().message, ContainsSubstring("64") && ContainsSubstring("60 prompt + 5"));
  CHECK(run.sinks[0]->finish == FinishReason::kNone);
  run.run();
  CHECK(run.sinks[0]->finish == FinishReason::kNone);
}

TEST_CASE("an evaluation is refused where its numbers would depend on the batch") {
  FakeBackendConfig backend;
  for (const bool batch_invariant : {false, true}) {
    backend.batch_invariant = batch_invariant;
    Running run(backend);
    Request request;
    request.prompt = {5, 6, 7};
    request.request_class = RequestClass::kEvaluation;
    request.sink = run.sinks.emplace_back(std::make_shared<Sink>());
    const auto id = run.engine->submit(std::move(request));
    CHECK(id.ok() == batch_invariant);
    if (!id) CHECK_THAT(id.error().message, ContainsSubstring("batch-invariant: expected a device whose numbers"));
  }
}

TEST_CASE("what a request computed whose logits are not finite is not kept, even when it was cancelled meanwhile") {
  for (const uint32_t poison : {0u, 1u}) {
    Running run({.poison = poison});
    const auto id = run.submit(20, 4);
    REQUIRE(id.ok());
    REQUIRE(run.engine->tick().value());
    run.engine->cancel(*id);
    run.run();
    CHECK(run.sinks[0]->finish == FinishReason::kCancelled);
    CHECK(run.engine->stats().blocks_cached == (poison == 0 ? 1u : 0u));
  }
}

TEST_CASE("a lost device ends every request, is written down, and later requests hear of it") {
  Running run({.poison = 0, .lost_at_submit = 3});
  REQUIRE(run.submit(8, 20).ok());
  REQUIRE(run.submit(8, 20).ok());
  Status status;
  while (status.ok()) {
    auto tick = run.engine->tick();
    if (!tick) status = tick.error();
  }
  CHECK(status.error().code == ErrorCode::kDeviceLost);
  for (const auto& sink : run.sinks) {
    CHECK(sink->finish == FinishReason::kError);
    REQUIRE(sink->error);
    CHECK(sink->error->code == ErrorCode::kDeviceLost);
  }
  CHECK_THAT(run.lines.str(), ContainsSubstring("engine stopped: device_lost: "));
  const auto late = run.submit(8, 1);
  REQUIRE_FALSE(late.ok());
  CHECK(late.error().code == ErrorCode::kDeviceLost);
  CHECK_THAT(late.error().message, ContainsSubstring("the server must be restarted"));
}

TEST_CASE("an engine that has ended takes no request that nobody would ever answer") {
  Running run;
  REQUIRE(run.submit(8, 20).ok());
  run.engine->stop();
  CHECK(run.engine->run().ok());
  CHECK(run.sinks[0]->finish == FinishReason::kError);
  const auto late = run.submit(8, 1);
  REQUIRE_FALSE(late.ok());
  CHECK(late.error().code == ErrorCode::kCancelled);
  CHECK_THAT(late.error().message, ContainsSubstring("shutting down"));
}

TEST_CASE("a policy ends a request before the phrase that it denies, and nothing of that was shown") {
  struct Text final : EventSink {
    void on_events(std::span<const TokenEvent> events) override {
      for (const TokenEvent& event : events) {
        if (event.token >= 0) text += make_fake_tokenizer()->token_bytes(event.token);
        text.resize(text.size() - event.cut_bytes);
        finish = event.finish;
        const size_t shown_bytes = text.size() - event.hold_bytes;
        CHECK(text.substr(0, shown_bytes).find("bab") == std::string::npos);
      }
    }
    std::string text;
    FinishReason finish = FinishReason::kNone;
  };
  Running run;
  const auto sink = std::make_shared<Text>();
  Request request;
  request.prompt = {5, 6, 7};
  request.max_tokens = 60;
  request.stop.ignore_eos = true;
  request.policy = std::make_shared<DenyList>(std::vector<std::string>{"bab"});
  request.sink = sink;
  REQUIRE(run.engine->submit(request).ok());
  run.run();
  CHECK(sink->finish == FinishReason::kPolicy);
  CHECK(std::string(finish_reason_name(sink->finish)) == "policy");
}

TEST_CASE("an adapter with invocation tokens counts from where they stand last in the prompt, or not at all") {
  const auto image = std::make_shared<AdapterImage>();
  image->invocation_tokens = {9, 10};
  const std::pair<std::vector<int32_t>, std::optional<uint32_t>> prompts[] = {
      {{9, 10}, 0}, {{9, 10, 7, 9, 10, 8, 9}, 3}, {{9, 9, 10, 10}, 1}, {{5, 6, 7, 8, 9, 10}, 4}, {{10, 9, 11}, {}},
      {{9}, {}}};
  Running run;
  for (const auto& [prompt, start] : prompts) {
    Request request;
    request.prompt = prompt;
    request.max_tokens = 8;
    request.stop.ignore_eos = true;
    request.sampling.temperature = 0;
    Request expected = request;
    expected.adapter_id = start ? 3 : 0;
    expected.adapter_start = start;
    request.adapter = image;
    request.adapter_id = 3;
    const auto sink = std::make_shared<Sink>();
    request.sink = sink;
    REQUIRE(run.engine->submit(std::move(request)).ok());
    run.run();
    CHECK(sink->finish == FinishReason::kLength);
    CHECK(sink->tokens == answer_alone(expected, *make_fake_tokenizer(), 0).tokens);
    if (!start) continue;
    expected.adapter_start.reset();
    CHECK((*start == 0) == (sink->tokens == answer_alone(expected, *make_fake_tokenizer(), 0).tokens));
  }
}

TEST_CASE("masks that ban everything end the request with empty_support, by that name") {
  Running run;
  Request request;
  request.prompt = {5, 6, 7};
  request.max_tokens = 4;
  for (int32_t token = 0; token < static_cast<int32_t>(kFakeVocab); ++token) {
    request.sampling.bad_words.push_back({token});
    request.sampling.logit_bias.emplace_back(token, 100.0f);  // takes no ban back
  }
  request.sink = run.sinks.emplace_back(std::make_shared<Sink>());
  REQUIRE(run.engine->submit(std::move(request)).ok());
  REQUIRE(run.submit(8, 4).ok());
  run.run();
  REQUIRE(run.sinks[0]->error);
  CHECK(run.sinks[0]->error->code == ErrorCode::kEmptySupport);
  CHECK(run.sinks[1]->finish == FinishReason::kLength);  // the others go on
}

// ---- what a server is not to serve ---------------------------------------------------------------------------------

namespace {

std::unique_ptr<Engine> make_engine(
    const SimClock& clock, const std::function<void(EngineConfig&)>& change,
    std::unique_ptr<Backend> backend = std::make_unique<FakeBackend>(FakeBackendConfig{})) {
  EngineConfig config;
  config.kv_tokens = 64 * 16;
  change(config);
  auto created = Engine::create(config, make_fake_model(), make_fake_tokenizer(), std::move(backend), &clock, {});
  REQUIRE(created.ok());
  return std::move(*created);
}

Request plain_request(RequestClass request_class = RequestClass::kInteractive) {
  Request request;
  request.prompt = {5, 6, 7};
  request.max_tokens = 2;
  request.request_class = request_class;
  return request;
}

// Its wait lasts until it is let go, as of a device that hangs.
struct HangingBackend final : ForwardingBackend {
  HangingBackend() : ForwardingBackend(std::make_shared<FakeBackend>(FakeBackendConfig{})) {}
  Result<StepOutput> wait(Ticket ticket) override {
    std::unique_lock lock(mutex);
    is_waiting = hangs;
    changed.notify_all();
    changed.wait(lock, [this] { return !hangs; });
    return ForwardingBackend::wait(ticket);
  }
  void let_go() {
    std::lock_guard lock(mutex);
    hangs = false;
    changed.notify_all();
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool hangs = false, is_waiting = false;
};

}  // namespace

TEST_CASE("classes and batch-invariance that a server does not allow are refused by name") {
  const SimClock clock;
  auto engine = make_engine(clock, [](EngineConfig& config) {
    config.allowed_classes = {};
    config.allowed_classes[static_cast<size_t>(RequestClass::kBatch)] = true;
  });
  CHECK(engine->submit(plain_request()).ok());  // what a request is that names none
  CHECK(engine->submit(plain_request(RequestClass::kBatch)).ok());
  for (const RequestClass which : {RequestClass::kAgent, RequestClass::kEvaluation, RequestClass::kBackground}) {
    const Result<RequestId> id = engine->submit(plain_request(which));
    REQUIRE_FALSE(id.ok());
    CHECK(id.error().code == ErrorCode::kUnsupported);
    CHECK(id.error().message == fmt::format("request_class: this server takes interactive, batch (--allow-classes), "
                                            "found {}",
                                            request_class_name(which)));
  }

  engine = make_engine(clock, [](EngineConfig& config) { config.allows_batch_invariant = false; });
  CHECK(engine->submit(plain_request(RequestClass::kBackground)).ok());
  Request invariant = plain_request();
  invariant.batch_invariant = true;
  for (const Request& request : {invariant, plain_request(RequestClass::kEvaluation)}) {
    const Result<RequestId> id = engine->submit(request);
    REQUIRE_FALSE(id.ok());
    CHECK(id.error().code == ErrorCode::kUnsupported);
    CHECK_THAT(id.error().message, ContainsSubstring("--no-batch-invariant"));
  }
}

TEST_CASE("a step that the device does not come back from is told while it lasts") {
  SimClock clock;
  clock.advance_ns(1'000'000'000);
  auto owned = std::make_unique<HangingBackend>();
  HangingBackend& backend = *owned;
  const auto engine = make_engine(
      clock, [](EngineConfig& config) { config.hang_s = 60; }, std::move(owned));
  CHECK_FALSE(engine->stalled().has_value());
  backend.hangs = true;
  REQUIRE(engine->submit(plain_request()).ok());
  std::thread runner([&] {
    for (bool worked = true; worked;) worked = engine->tick().value();
  });
  {
    std::unique_lock lock(backend.mutex);
    backend.changed.wait(lock, [&] { return backend.is_waiting; });
  }
  CHECK_FALSE(engine->stalled().has_value());
  clock.advance_ns(59'000'000'000);
  CHECK_FALSE(engine->stalled().has_value());
  clock.advance_ns(4'000'000'000);
  const std::optional<StalledStep> stalled = engine->stalled();
  backend.let_go();
  runner.join();
  REQUIRE(stalled.has_value());
  CHECK(stalled->step == 1);
  CHECK(stalled->seconds > 62);
  CHECK(stalled->seconds < 64);
  CHECK_FALSE(engine->stalled().has_value());  // it came back
}
