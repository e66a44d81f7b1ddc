// Rows whose tokens a constraint masks, in the engine: answers as alone, whatever runs beside them and however late
// their masks are; where they end; what ends one of them alone.
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <memory>

#include "core/engine/engine.h"
#include "tests/fakes/fake_backend.h"
#include "tests/fakes/fake_constraint.h"
#include "tests/fakes/sim_clock.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

struct Answers final : EventSink {
  struct Branch {
    std::vector<int32_t> tokens;
    FinishReason finish = FinishReason::kNone;
    std::optional<Error> error;
  };
  void on_events(std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events) {
      Branch& branch = branches[event.branch];
      if (event.token >= 0) branch.tokens.push_back(event.token);
      if (event.finish != FinishReason::kNone) branch.finish = event.finish;
      if (event.error) branch.error = event.error;
    }
  }
  std::map<uint32_t, Branch> branches;
};

struct Bench {
  explicit Bench(EngineConfig config = {}) {
    config.context_max = 256;
    config.sequences_max = 8;
    config.step_tokens_max = 32;
    config.chunk_tokens = 16;
    if (config.kv_tokens == 0) config.kv_tokens = 2048;
    config.audit_steps = 1;
    auto made = Engine::create(config, make_fake_model(), make_fake_tokenizer(),
                               std::make_unique<FakeBackend>(FakeBackendConfig()), &clock, {});
    REQUIRE(made.ok());
    engine = std::move(*made);
  }
  std::shared_ptr<Answers> submit(Request request) {
    auto sink = std::make_shared<Answers>();
    request.sink = sink;
    const auto id = engine->submit(std::move(request));
    REQUIRE(id.ok());
    last_id = *id;
    return sink;
  }
  void run(int ticks = 5000) {
    for (int i = 0; i < ticks; ++i) {
      const auto worked = engine->tick();
      REQUIRE(worked.ok());
      clock.advance_ns(1'000'000);
    }
  }
  SimClock clock;
  std::unique_ptr<Engine> engine;
  RequestId last_id = 0;
};

Request constrained(uint64_t seed, uint32_t asks_max = 0, uint32_t length = 12) {
  Request request;
  for (uint32_t i = 0; i < length; ++i) request.prompt.push_back(static_cast<int32_t>(2 + (seed * 7 + i) % 50));
  request.max_tokens = 60;
  request.sampling.seed = seed;
  request.constraint = std::make_shared<FakeConstraint>(FakeConstraintConfig{.seed = seed, .asks_max = asks_max});
  return request;
}

void check_alone(const Answers& got, const Request& request) {
  REQUIRE(got.branches.size() == request.n);
  for (uint32_t branch = 0; branch < request.n; ++branch) {
    Request own = request;
    own.sampling.branch += branch;
    const FakeAnswer alone = answer_alone(own, *make_fake_tokenizer(), 0);
    CHECK(got.branches.at(branch).tokens == alone.tokens);
    CHECK(got.branches.at(branch).finish == alone.finish);
  }
}

TEST_CASE("constrained rows answer as alone, batched, in chunks, of several branches, preempted") {
  for (const bool overlap : {true, false}) {
    for (const uint64_t kv_tokens : {2048u, 320u}) {
      EngineConfig config;
      config.overlap = overlap;
      config.kv_tokens = kv_tokens;
      config.reserve_output_tokens = 1;
      Bench bench(config);
      std::vector<Request> requests;
      std::vector<std::shared_ptr<Answers>> answers;
      for (uint64_t seed = 1; seed <= 12; ++seed) {
        Request request = constrained(seed, 0, seed % 2 == 0 ? 12 : 50);
        request.constraint = std::make_shared<FakeConstraint>(
            FakeConstraintConfig{.seed = seed, .asks_max = seed % 3 == 0 ? 3u : 0u, .end_one_in = 200});
        if (seed % 4 == 0) request.n = 3;
        if (seed % 5 == 0) request.constraint = nullptr;
        requests.push_back(request);
        answers.push_back(bench.submit(request));
      }
      bench.run();
      for (size_t i = 0; i < requests.size(); ++i) {
        CAPTURE(overlap, kv_tokens, i);
        check_alone(*answers[i], requests[i]);
      }
      if (kv_tokens == 320u) CHECK(bench.engine->stats().num_preemptions > 0);
    }
  }
}

TEST_CASE("a late mask parks its row alone") {
  Bench bench;
  Request plain = constrained(20);
  plain.constraint = nullptr;
  plain.stop.ignore_eos = true;
  const auto free_answer = bench.submit(plain);
  Request late = constrained(21, 50);
  const auto late_answer = bench.submit(late);
  size_t ticks = 0;
  for (; free_answer->branches[0].finish == FinishReason::kNone; ++ticks) bench.run(1);
  CHECK(ticks < 80);  // a token a tick
  CHECK(bench.engine->stats().num_parked > 0);
  bench.run();
  check_alone(*late_answer, late);
}

TEST_CASE("an answer ends when it is whole, without a step for an end token; else by one, or by its length") {
  std::map<FinishReason, int> ends;
  Bench bench;
  for (uint64_t seed = 100; seed < 160; ++seed) {
    Request request = constrained(seed);
    request.max_tokens = 10;
    const auto answer = bench.submit(request);
    bench.run(200);
    check_alone(*answer, request);
    const auto& got = answer->branches[0];
    ++ends[got.finish];
    auto matcher = request.constraint->start();
    for (const int32_t token : got.tokens) REQUIRE(matcher->advance(token));
    if (got.finish == FinishReason::kGrammarEnd) CHECK(matcher->ended());
    if (got.finish == FinishReason::kEos) CHECK((got.tokens.back() == 0 || got.tokens.back() == 1));
  }
  CHECK(ends[FinishReason::kGrammarEnd] > 0);
  CHECK(ends[FinishReason::kEos] > 0);
  CHECK(ends[FinishReason::kLength] > 0);
}

TEST_CASE("a mask that cannot be made, and tokens that were no answer, end their request alone") {
  Bench bench;
  Request broken = constrained(7);
  broken.constraint = std::make_shared<FakeConstraint>(FakeConstraintConfig{.seed = 7, .fail_one_in = 1});
  Request begun = constrained(8);
  begun.begun = {0};  // an end token where the answer is not whole
  while (begun.constraint->start()->advance(begun.begun[0])) {
    begun = constrained(begun.sampling.seed + 1);
    begun.begun = {0};
  }
  const Request fine = constrained(9);
  const auto broken_answer = bench.submit(broken), begun_answer = bench.submit(begun), fine_answer = bench.submit(fine);
  bench.run(500);
  CHECK(broken_answer->branches[0].error->code == ErrorCode::kGrammarTooComplex);
  CHECK(broken_answer->branches[0].tokens.empty());
  CHECK(begun_answer->branches[0].error->code == ErrorCode::kInvalidArgument);
  check_alone(*fine_answer, fine);
}

TEST_CASE("what a constraint does not go together with is refused, and its state goes with its request") {
  Bench bench;
  const auto refusal = [&](auto change) {
    Request request = constrained(1);
    change(request);
    const auto id = bench.engine->submit(request);
    REQUIRE_FALSE(id.ok());
    return id.error().message;
  };
  CHECK(refusal([](Request& r) { r.min_tokens = 1; }).starts_with("min_tokens: not together with a grammar"));
  CHECK(refusal([](Request& r) { r.stop.ignore_eos = true; }).starts_with("ignore_eos: not together with a grammar"));
  CHECK(refusal([](Request& r) {
          r.beam = BeamParams{};
          r.n = 2;
        }) == "use_beam_search: not together with a grammar");
  Request request = constrained(30);
  request.constraint = std::make_shared<FakeConstraint>(FakeConstraintConfig{.seed = 30, .asks_max = 1000});
  const std::weak_ptr<const TokenConstraint> constraint = request.constraint;
  const auto answer = bench.submit(std::move(request));
  bench.run(5);
  CHECK_FALSE(constraint.expired());
  bench.engine->cancel(bench.last_id);
  bench.run(5);
  CHECK(answer->branches[0].finish == FinishReason::kCancelled);
  CHECK(constraint.expired());
}

}  // namespace
