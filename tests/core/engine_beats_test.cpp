// Steps in two beats: how a step is handed over in parts, and that rows which need their newest token on the host
// decode in every step. Method: the backend of hashes; engines with rows of one kind, whose steps are counted.
#include <catch2/catch_test_macros.hpp>

#include "core/engine/engine.h"
#include "core/engine/flights.h"
#include "core/engine/probe_plan.h"
#include "tests/fakes/fake_backend.h"
#include "tests/fakes/processors.h"
#include "tests/fakes/sim_clock.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

constexpr uint32_t kOutput = 40;

struct Sink final : EventSink {
  void on_events(std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events) {
      if (event.token >= 0) tokens.push_back(event.token);
      if (event.finish != FinishReason::kNone) finish = event.finish;
    }
  }
  std::vector<int32_t> tokens;
  FinishReason finish = FinishReason::kNone;
};

struct Answers {
  std::vector<std::vector<int32_t>> tokens;  // by request
  uint64_t num_steps;
};

enum class RowKind { kPlain, kNoRepeats, kProcessor, kMixed };

// All of them at once, kOutput tokens each.
Answers answer(uint32_t num_rows, RowKind kind, bool overlap) {
  EngineConfig config;
  config.context_max = 64;
  config.sequences_max = num_rows;
  config.kv_tokens = num_rows * 64;
  config.audit_steps = 1;
  config.overlap = overlap;
  SimClock clock;
  auto engine = Engine::create(config, make_fake_model(), make_fake_tokenizer(),
                               std::make_unique<FakeBackend>(FakeBackendConfig{}), &clock, {});
  REQUIRE(engine.ok());
  std::vector<std::shared_ptr<Sink>> sinks;
  for (uint32_t i = 0; i < num_rows; ++i) {
    Request request;
    request.prompt = {5, static_cast<int32_t>(i)};
    request.max_tokens = kOutput;
    request.stop.ignore_eos = true;
    if (kind == RowKind::kNoRepeats || (kind == RowKind::kMixed && i % 2 == 0)) request.sampling.no_repeat_ngram_size = 2;
    if (kind == RowKind::kProcessor) request.processors = {std::make_shared<LimitRuns>(1)};
    request.sink = sinks.emplace_back(std::make_shared<Sink>());
    REQUIRE((*engine)->submit(std::move(request)).ok());
  }
  for (bool worked = true; worked;) {
    const auto tick = (*engine)->tick();
    REQUIRE(tick.ok());
    worked = *tick;
  }
  Answers answers{{}, (*engine)->stats().num_steps};
  CHECK((*engine)->stats().num_parked == 0);
  for (const auto& sink : sinks) {
    CHECK(sink->finish == FinishReason::kLength);
    answers.tokens.push_back(sink->tokens);
  }
  return answers;
}

}  // namespace

TEST_CASE("rows that need their newest token on the host decode in every step, and say what they say without overlap") {
  for (const uint32_t num_rows : {1u, 32u}) {
    const uint64_t plain_steps = answer(num_rows, RowKind::kPlain, true).num_steps;
    CHECK(plain_steps == kOutput);
    for (const RowKind kind : {RowKind::kNoRepeats, RowKind::kProcessor, RowKind::kMixed}) {
      const Answers ahead = answer(num_rows, kind, true), plain_loop = answer(num_rows, kind, false);
      CHECK(ahead.num_steps == plain_steps);
      CHECK(ahead.tokens == plain_loop.tokens);
    }
  }
}

TEST_CASE("a step whose tail waits is two submissions, and gives what both of them gave") {
  const auto model = make_fake_model();
  FakeBackend backend({.token_ms = 0.5});
  Lowering lowering(model, backend.caps(), 64, 8);
  EngineConfig config;
  config.context_max = 64;
  config.sequences_max = 4;
  PlanLimits limits{};
  limits.row_updates_max = limits.payload_words_max = limits.bias_entries_max = 64;
  limits.rows_max = limits.tokens_max = limits.samples_max = 8;
  REQUIRE(backend.create_state(lowering.state_config(config, limits, 256, backend)).ok());
  const KvGroup group{1, 1, 1, 16, 16, KvDType::kF16};
  REQUIRE(backend.create_kv_pools({&group, 1}).ok());
  const ProbeShape shape{2, 1, 10, 1, 16};
  for (uint32_t i = 0; i < 2; ++i) REQUIRE(apply_row_updates(probe_setup_plan(shape, i), &backend).ok());
  const uint64_t submitted_before = backend.num_submitted();

  Flights flights(&lowering, &backend);
  const IterationPlan whole = probe_plan(shape, kFakeVocab);
  IterationPlan late = whole, parked = whole;
  late.late_rows = parked.late_rows = {0};
  REQUIRE(flights.launch({&whole}).ok());
  REQUIRE(flights.launch({&late}).ok());
  CHECK(backend.num_submitted() == submitted_before + 2);
  CHECK(flights.oldest().plan == &whole);
  CHECK(flights.newest().plan == &late);
  const auto first = flights.land();
  REQUIRE(first.ok());
  CHECK(first->results.size() == 2);
  late.late_rows.clear();
  REQUIRE(flights.launch_tail().ok());
  REQUIRE(flights.launch({&parked}).ok());
  CHECK(backend.num_submitted() == submitted_before + 4);
  const auto second = flights.land();
  REQUIRE(second.ok());
  CHECK(second->results.size() == 2);
  CHECK(second->forward_ms == first->forward_ms);
  // Nothing is left to sample: no tail goes out.
  parked.late_rows.clear();
  parked.samples.clear();
  for (PlanRow& row : parked.rows) row.num_samples = 0;
  REQUIRE(flights.launch_tail().ok());
  CHECK(backend.num_submitted() == submitted_before + 4);
  const auto third = flights.land();
  REQUIRE(third.ok());
  CHECK(third->results.empty());
  CHECK(third->forward_ms == first->forward_ms);
  CHECK(flights.is_empty());
}
