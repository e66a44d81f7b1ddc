// What requests hold while they wait. Method: the engine over the backend of hashes; operator new counts the bytes that
// are held.
#include <fmt/format.h>
#include <malloc.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <new>
#include <vector>

#include "core/engine/engine.h"
#include "tests/fakes/fake_backend.h"
#include "tests/fakes/sim_clock.h"

namespace {
std::atomic<int64_t> num_held = 0;
}

#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // malloc below new, free below delete: they do match
void* operator new(size_t bytes) {
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  num_held += static_cast<int64_t>(malloc_usable_size(memory));
  return memory;
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  void* memory = std::malloc(bytes);
  if (memory != nullptr) num_held += static_cast<int64_t>(malloc_usable_size(memory));
  return memory;
}
void operator delete(void* memory) noexcept {
  num_held -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  operator delete(memory);
}

using namespace llmrt;
using namespace llmrt::test;

namespace {

struct Running {
  explicit Running(const std::function<void(EngineConfig&)>& change = {}) {
    EngineConfig config;
    config.kv_tokens = 64 * 1024;
    config.sequences_max = 16;
    if (change) change(config);
    auto created = Engine::create(config, make_fake_model(), make_fake_tokenizer(),
                                  std::make_unique<FakeBackend>(FakeBackendConfig{}), &clock, {});
    REQUIRE(created.ok());
    engine = std::move(*created);
  }
  SimClock clock;
  std::unique_ptr<Engine> engine;
};

// As many lists as a request may have, all as long as they may be.
Request heavy_request() {
  Request request;
  request.prompt = {5};
  request.n = kBranchesMax;
  request.max_tokens = 4000;
  request.stop.ignore_eos = true;
  for (int32_t i = 0; i < 1024; ++i) {
    request.sampling.logit_bias.push_back({i % static_cast<int32_t>(kFakeVocab), 1});
    request.sampling.bad_words.push_back(std::vector<int32_t>(8, i % static_cast<int32_t>(kFakeVocab)));
  }
  for (int i = 0; i < 4; ++i) request.stop.strings.push_back(std::string(256, static_cast<char>('w' + i)));
  return request;
}

}  // namespace

TEST_CASE("a branch that waits holds almost nothing, whatever its request brings along") {
  constexpr int kRequests = 60;
  Running run;
  for (int i = 0; i < 2; ++i) {  // whoever runs, and buffers as large as they get
    REQUIRE(run.engine->submit(heavy_request()).ok());
    REQUIRE(run.engine->tick().ok());
  }
  const int64_t before = num_held;
  for (int i = 0; i < kRequests; ++i) REQUIRE(run.engine->submit(heavy_request()).ok());
  for (int i = 0; i < 3; ++i) REQUIRE(run.engine->tick().ok());
  const int64_t held = num_held - before;
  REQUIRE(run.engine->stats().num_waiting > (kRequests + 1) * kBranchesMax);
  const int64_t each = held / (kRequests * kBranchesMax);
  fmt::print("{} requests of {} branches that wait: {} bytes, {} a branch\n", kRequests, kBranchesMax, held, each);
  CHECK(each < 2500);  // with its part of the lists, which are there once
  CHECK(held <= static_cast<int64_t>(kRequests * held_bytes(heavy_request())));
}

TEST_CASE("copies of a request share its lists until one of them is changed") {
  const Request one = heavy_request();
  Request other = one;
  CHECK(other.sampling.logit_bias.shares_with(one.sampling.logit_bias));
  CHECK(other.sampling.bad_words.shares_with(one.sampling.bad_words));
  CHECK(other.stop.strings.automaton() == one.stop.strings.automaton());
  other.sampling.bad_words.push_back({1});
  other.stop.strings.push_back("x");
  CHECK_FALSE(other.sampling.bad_words.shares_with(one.sampling.bad_words));
  CHECK(one.sampling.bad_words.size() == 1024);
  CHECK(other.sampling.bad_words.size() == 1025);
  CHECK(other.stop.strings.automaton() != one.stop.strings.automaton());
  CHECK(one.stop.strings.size() == 4);
  CHECK(other.stop.strings.size() == 5);
}

TEST_CASE("what waits is bounded in choices and in bytes, and nobody else is told to come again") {
  const auto submit_until_full = [](Running& run, const Request& request) {
    for (int i = 0;; ++i) {
      const Result<RequestId> id = run.engine->submit(request);
      if (!id) {
        CHECK(id.error().code == ErrorCode::kOverloaded);
        CHECK(id.error().retry_after_s >= 1);
        return std::pair(i, id.error().message);
      }
      REQUIRE(i < 1 << 16);
      if (i % 16 == 0) REQUIRE(run.engine->tick().ok());
    }
  };
  Request plain;
  plain.prompt = {5};
  plain.max_tokens = 4000;
  plain.stop.ignore_eos = true;

  Running choices([](EngineConfig& config) { config.queue_branches_max = 300; });
  plain.n = kBranchesMax;
  const auto [num_accepted, message] = submit_until_full(choices, plain);
  // 16 run, or are still in the inbox.
  CHECK(num_accepted == 2);
  CHECK(message == "queue full: expected at most 300 choices to wait, found 240 and 128 more");
  plain.n = 1;
  CHECK(choices.engine->submit(plain).ok());

  Running bytes([](EngineConfig& config) { config.queue_bytes_max = 4u << 20; });
  const auto [num_heavy, text] = submit_until_full(bytes, heavy_request());
  CHECK(num_heavy >= 8);
  CHECK(num_heavy <= 14);
  CHECK(text.starts_with("queue full: expected at most 4194304 bytes of requests to wait, found "));

  // By default: 16,384 of one choice, but no matter how they are counted.
  Running run;
  const auto [num_default, unused] = submit_until_full(run, plain);
  CHECK(num_default >= 16384);
  CHECK(num_default <= 16384 + 32);
  CHECK(run.engine->stats().num_rejected == 1);
}

TEST_CASE("an idle engine takes whatever one call may ask for") {
  Running tiny([](EngineConfig& config) { config.queue_branches_max = config.queue_bytes_max = 1; });
  REQUIRE(tiny.engine->submit(heavy_request()).ok());  // nobody waits

  Running run;
  Request request;
  request.n = kBranchesMax;
  request.prompt = {5, 6, 7};
  REQUIRE(run.engine->submit(request).ok());
  request.n = 1;
  request.max_tokens = 0;
  request.sampling.logprobs = 5;
  request.sampling.prompt_logprobs = true;
  request.prompt.assign(2000, 5);
  for (int i = 0; i < 128; ++i) REQUIRE(run.engine->submit(request).ok());
}
