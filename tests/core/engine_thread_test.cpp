// The engine's thread: answers arrive while the program does something else, its end is a cancellation, and a failure
// is told once, behind the ends of all requests. Method: the backend of hashes on the real clock; sinks are waited for.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <atomic>
#include <future>

#include "core/engine/engine_thread.h"
#include "tests/fakes/fake_backend.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

struct Sink final : EventSink {
  void on_events(std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events)
      if (event.finish != FinishReason::kNone) end.set_value(event);
  }
  std::promise<TokenOutcome> end;
};

struct Running {
  explicit Running(FakeBackendConfig backend = {}) {
    EngineConfig config;
    config.context_max = 64;
    config.kv_tokens = 4 * 16;
    auto created = Engine::create(config, make_fake_model(), make_fake_tokenizer(),
                                  std::make_unique<FakeBackend>(backend), &clock, {});
    REQUIRE(created.ok());
    engine = std::move(*created);
  }
  std::future<TokenOutcome> submit(uint32_t max_tokens) {
    Request request;
    request.prompt = {5, 6, 7};
    request.max_tokens = max_tokens;
    request.stop.ignore_eos = true;
    const auto sink = std::make_shared<Sink>();
    request.sink = sink;
    REQUIRE(engine->submit(std::move(request)).ok());
    return sink->end.get_future();
  }
  SteadyClock clock;
  std::unique_ptr<Engine> engine;
};

}  // namespace

TEST_CASE("answers come from the engine's thread, and it ends without trouble") {
  Running run;
  EngineThread thread(run.engine.get());
  std::atomic<int> num_failures = 0;
  thread.start([&] { ++num_failures; });
  CHECK(run.submit(8).get().finish == FinishReason::kLength);
  CHECK_FALSE(thread.trouble());
  CHECK(thread.join().ok());
  CHECK(thread.join().ok());
  CHECK(num_failures == 0);
}

TEST_CASE("engines that share a counter give no id twice") {
  Running one, other;
  const auto last_id = std::make_shared<std::atomic<RequestId>>(10);
  one.engine->set_ids(last_id);
  other.engine->set_ids(last_id);
  Request request;
  request.prompt = {5};
  request.max_tokens = 1;
  request.sink = std::make_shared<Sink>();
  request.n = 3;
  CHECK(*one.engine->submit(request) == 11);
  request.sink = std::make_shared<Sink>();
  CHECK(*other.engine->submit(request) == 14);
  request.sink = std::make_shared<Sink>();
  CHECK(*one.engine->submit(request) == 17);
}

TEST_CASE("a request that is there when the thread ends is cancelled") {
  Running run;
  std::future<TokenOutcome> end = run.submit(40);
  {
    EngineThread thread(run.engine.get());
    run.engine->stop();
    thread.start([] {});
  }
  const TokenOutcome outcome = end.get();
  REQUIRE(outcome.error);
  CHECK(outcome.error->code == ErrorCode::kCancelled);
}

TEST_CASE("a failure is told once, after the requests have ended, and stays") {
  Running run({.lost_at_submit = 3});
  EngineThread thread(run.engine.get());
  std::future<TokenOutcome> end = run.submit(40);
  std::promise<void> failed;
  thread.start([&] { failed.set_value(); });
  failed.get_future().get();
  REQUIRE(end.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
  CHECK(end.get().finish == FinishReason::kError);
  REQUIRE(thread.trouble());
  const Status ran = thread.join();
  REQUIRE_FALSE(ran.ok());
  CHECK(ran.error().code == ErrorCode::kDeviceLost);
  CHECK(*thread.trouble() == ran.error().message);
}
