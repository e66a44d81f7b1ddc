// Each line of compatibility_table() against what the code does. Method: two requests that differ in just that are
// planned into one step; or the engine's identity, its answer, or a refusal tells them apart. A line without a check
// fails, and so does a check without a line.
#include "core/study/compatibility.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "core/engine/cache_identity.h"
#include "core/engine/engine.h"
#include "core/engine/lower.h"
#include "core/sample/logits_processor.h"
#include "core/schedule/scheduler.h"
#include "core/speculate/ngram_drafter.h"
#include "server/api_request.h"
#include "server/json_reader.h"
#include "tests/fakes/fake_backend.h"
#include "tests/fakes/fake_constraint.h"
#include "tests/fakes/processors.h"
#include "tests/fakes/sim_clock.h"
#include "tests/server/letter_model.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

Request plain_request() {
  Request request;
  request.id = 1;
  request.prompt = {5, 6, 7};
  request.max_tokens = 8;
  return request;
}

// The first step of a scheduler that has them all.
const IterationPlan* first_plan(Scheduler& scheduler, std::span<const Request> requests) {
  for (const Request& request : requests) {
    REQUIRE(validate(request, kFakeVocab).ok());
    REQUIRE(scheduler.check(request).ok());
    scheduler.add(request, 0);
  }
  const IterationPlan* plan = scheduler.plan(0);
  REQUIRE(plan != nullptr);
  return plan;
}

SchedulerConfig scheduler_config() {
  SchedulerConfig config;
  config.context_max = 256;
  config.kv_pools = {{64, 16}};
  config.end_of_generation = {0};
  return config;
}

using Change = std::function<void(Request&)>;

// A plain request and one that differs by `change` are rows of one step, the plain one as if it were alone.
void share_a_step(const Change& change) {
  std::vector<Request> requests = {plain_request(), plain_request()};
  requests[1].id = 2;
  requests[1].prompt[0] = 9;  // each its own text
  change(requests[1]);
  Scheduler scheduler(scheduler_config());
  const IterationPlan* plan = first_plan(scheduler, requests);
  REQUIRE(plan->rows.size() == 2);
  CHECK(plan->rows[0].request_id == 1);
  CHECK(plan->rows[1].request_id == 2);
  CHECK(plan->rows[0].num_tokens == 3);
  CHECK(plan->rows[0].num_samples == 1);
  CHECK(plan->samples[0].changes.num_bias == 0);
  CHECK_FALSE(plan->rows[0].batch_invariant);
  CHECK(scheduler.check_books().ok());
}

// The second of two requests with one prompt, once the first has ended: which tokens of it are known.
uint32_t cached_tokens(const Change& change) {
  SchedulerConfig config = scheduler_config();
  config.prefix_cache = PrefixCacheKind::kRadix;
  Scheduler scheduler(config);
  uint32_t cached = 0;
  for (const RequestId id : {1, 2}) {
    Request request = plain_request();
    request.id = id;
    request.prompt.assign(40, 5);
    request.max_tokens = 1;
    if (id == 2) change(request);
    scheduler.add(request, 0);
    const IterationPlan* plan = scheduler.plan(0);
    REQUIRE(plan != nullptr);
    std::vector<Verdict> verdicts(1);
    verdicts[0].token = 7;
    verdicts[0].finish = FinishReason::kLength;
    scheduler.commit(*plan, verdicts, 0);
    std::vector<TokenEvent> events;
    scheduler.take_events(&events);
    cached = events.back().cached_tokens;
  }
  return cached;
}

// Branches begin when the first of them has computed the prompt; from then on they are rows beside all others.
void branches_share_a_step(const Change& change) {
  std::vector<Request> requests = {plain_request(), plain_request()};
  requests[1].id = 2;
  requests[1].n = 2;
  change(requests[1]);
  Scheduler scheduler(scheduler_config());
  const IterationPlan* plan = first_plan(scheduler, requests);
  REQUIRE(plan->rows.size() == 2);
  std::vector<Verdict> verdicts(2);
  verdicts[0].token = 7;
  verdicts[1].token = 7;
  if (requests[1].beam) {
    verdicts[1].token = -1;
    verdicts[1].top_logprobs = {{7, -1}, {8, -2}, {9, -3}};
  }
  scheduler.commit(*plan, verdicts, 0);
  plan = scheduler.plan(0);
  REQUIRE(plan != nullptr);
  CHECK(plan->rows.size() >= 2);
  CHECK(plan->rows.front().request_id == 1);
  CHECK(plan->rows.back().request_id == 3);
}

struct Sink final : EventSink {
  void on_events(std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events)
      if (event.finish != FinishReason::kNone) finish = event.finish;
  }
  FinishReason finish = FinishReason::kNone;
};

struct Running {
  explicit Running(std::shared_ptr<const Tokenizer> tokenizer) {
    EngineConfig config;
    config.context_max = 128;
    config.kv_tokens = 256;
    auto created = Engine::create(config, make_fake_model(), std::move(tokenizer),
                                  std::make_unique<FakeBackend>(FakeBackendConfig{}), &clock, {});
    REQUIRE(created.ok());
    engine = std::move(*created);
  }
  FinishReason run(Request request) {
    const auto sink = std::make_shared<Sink>();
    request.sink = sink;
    REQUIRE(engine->submit(std::move(request)).ok());
    while (sink->finish == FinishReason::kNone) REQUIRE(engine->tick().ok());
    return sink->finish;
  }
  SimClock clock;
  std::unique_ptr<Engine> engine;
};

// One request ends where the tokenizer says that answers end; an engine without one goes on.
void check_tokenizer() {
  Request request = plain_request();
  request.max_tokens = 60;
  const auto tokenizer = make_fake_tokenizer();
  while (answer_alone(request, *tokenizer, 0).finish != FinishReason::kEos) {
    ++request.prompt[0];
    REQUIRE(request.prompt[0] < static_cast<int32_t>(kFakeVocab));
  }
  CHECK(Running(tokenizer).run(request) == FinishReason::kEos);
  CHECK(Running(nullptr).run(request) == FinishReason::kLength);
}

// Two engines have nothing in common: what one is given the other never sees.
void check_device() {
  Running one(make_fake_tokenizer()), other(make_fake_tokenizer());
  one.run(plain_request());
  CHECK(one.engine->stats().prompt_tokens == 3);
  CHECK(other.engine->stats().prompt_tokens == 0);
  CHECK(other.engine->stats().num_steps == 0);
}

Model small_model() {
  Model model = *make_fake_model();
  WeightTensor tensor;
  tensor.name = "output.weight";
  tensor.rows = 64;
  tensor.columns = 256;
  tensor.generate = [](uint64_t, std::span<std::byte> out) { std::ranges::fill(out, std::byte(0)); };
  model.weights.tensors.push_back(tensor);
  return model;
}

void differ_in_identity(const std::function<void(Model&, EngineConfig&)>& change) {
  Model model = small_model();
  EngineConfig config;
  const Digest before = cache_identity(model, config);
  CHECK(cache_identity(small_model(), EngineConfig()) == before);
  change(model, config);
  CHECK_FALSE(cache_identity(model, config) == before);
}

void is_refused(const std::string& field, const std::string& value) {
  auto body = server::read_json("{\"prompt\": \"a\", \"" + field + "\": " + value + "}");
  REQUIRE(body.ok());
  auto parsed = server::parse_completion(body->as_object(), server::letter_model(), 7);
  INFO(field);
  const auto* error = std::get_if<server::ApiError>(&parsed);
  REQUIRE(error != nullptr);
  CHECK(error->param == field);
}

const std::map<std::string, std::function<void()>> kChecks = {
    {"sampling parameters",
     [] {
       share_a_step([](Request& request) { request.sampling.temperature = 0; });
       share_a_step([](Request& request) { request.sampling.seed = 8; });
       share_a_step([](Request& request) {
         request.sampling.top_k = 5;
         request.sampling.top_p = 0.5f;
         request.sampling.min_p = 0.25f;
       });
     }},
    {"penalties", [] { share_a_step([](Request& request) { request.sampling.presence_penalty = 1; }); }},
    {"logit masks",
     [] {
       share_a_step([](Request& request) { request.sampling.logit_bias = {{7, 1.0f}}; });
       share_a_step([](Request& request) { request.sampling.bad_words = {{7}}; });
       share_a_step([](Request& request) { request.sampling.no_repeat_ngram_size = 2; });
       share_a_step([](Request& request) { request.min_tokens = 4; });
       share_a_step([](Request& request) { request.processors = {std::make_shared<LimitRuns>(2)}; });
     }},
    {"stop conditions",
     [] {
       share_a_step([](Request& request) { request.stop.strings = {"ab"}; });
       share_a_step([](Request& request) { request.stop.token_ids = {7}; });
       share_a_step([](Request& request) { request.stop.ignore_eos = true; });
     }},
    {"log-probabilities",
     [] {
       share_a_step([](Request& request) { request.sampling.logprobs = 3; });
       share_a_step([](Request& request) {
         request.sampling.logprobs = 0;
         request.sampling.processed_logprobs = true;
       });
     }},
    {"prompt log-probabilities",
     [] {
       share_a_step([](Request& request) {
         request.sampling.logprobs = 0;
         request.sampling.prompt_logprobs = true;
       });
     }},
    {"context length",
     [] {
       share_a_step([](Request& request) { request.prompt.resize(200, 9); });
       share_a_step([](Request& request) { request.prompt.resize(1); });
     }},
    {"request class",
     [] {
       for (const auto request_class :
            {RequestClass::kAgent, RequestClass::kBatch, RequestClass::kEvaluation, RequestClass::kBackground})
         share_a_step([=](Request& request) { request.request_class = request_class; });
     }},
    {"batch-invariant mode",
     [] {
       const Change invariant = [](Request& request) { request.batch_invariant = true; };
       share_a_step(invariant);
       CHECK(cached_tokens([](Request&) {}) > 0);
       CHECK(cached_tokens(invariant) == 0);
     }},
    {"branches (n)", [] { branches_share_a_step([](Request&) {}); }},
    {"beam search", [] { branches_share_a_step([](Request& request) { request.beam = BeamParams{}; }); }},
    {"cache salt",
     [] {
       const Change salted = [](Request& request) { request.cache_salt = "salt"; };
       share_a_step(salted);
       CHECK(cached_tokens(salted) == 0);
     }},
    {"model",
     [] {
       differ_in_identity(
           [](Model& model, EngineConfig&) { model.config.layers.push_back(model.config.layers.front()); });
       differ_in_identity([](Model& model, EngineConfig&) { model.config.rope_freqs.push_back({1}); });
     }},
    {"tokenizer", check_tokenizer},
    {"quantization",
     [] {
       differ_in_identity([](Model& model, EngineConfig&) { model.weights.tensors.back().encoding = Encoding::kQ8_0; });
     }},
    {"KV dtype", [] { differ_in_identity([](Model&, EngineConfig& config) { config.kv_dtype = KvDType::kI8; }); }},
    {"device", check_device},
    {"adapter",
     [] {
       share_a_step([](Request& request) { request.adapter_id = 1; });
       CHECK(cached_tokens([](Request& request) { request.adapter_id = 1; }) == 0);
       is_refused("adapter", "\"a\"");
       is_refused("lora_request", "{}");
     }},
    {"grammar",
     [] {
       share_a_step([](Request& request) {
         request.constraint = std::make_shared<FakeConstraint>(FakeConstraintConfig{.seed = 3});
       });
     }},
    {"drafts",
     [] {
       share_a_step([](Request& request) { request.speculation = Speculation{std::make_shared<NgramDrafts>()}; });
       share_a_step([](Request& request) { request.speculation = Speculation{}; });
     }},
    {"draft model",
     [] {
       is_refused("draft_model", "\"a\"");
       is_refused("speculative_config", "{}");
     }},
};

}  // namespace

TEST_CASE("every line of the compatibility table holds") {
  for (const Compatibility& line : compatibility_table()) {
    INFO(line.name);
    const auto check = kChecks.find(line.name);
    REQUIRE(check != kChecks.end());
    check->second();
    CHECK_FALSE(std::string(line.reason).empty());
  }
  CHECK(compatibility_table().size() == kChecks.size());
}

TEST_CASE("a batch-invariant row makes the whole step invariant") {
  std::vector<Request> requests = {plain_request(), plain_request()};
  requests[1].id = 2;
  requests[1].batch_invariant = true;
  Scheduler scheduler(scheduler_config());
  const IterationPlan* plan = first_plan(scheduler, requests);
  REQUIRE(plan->rows.size() == 2);
  CHECK_FALSE(plan->rows[0].batch_invariant);
  CHECK(plan->rows[1].batch_invariant);
  Caps caps;
  caps.batch_invariant = true;
  const EngineConfig config;
  Lowering lowering(make_fake_model(), caps, config.step_tokens_max, config.sample_rows_max);
  static_cast<void>(lowering.state_config(config, plan_limits(scheduler_config()), 1024, FakeBackend({})));
  LoweredStep step;
  lowering.lower(*plan, &step);
  CHECK(step.forward->list.batch_invariant);
  CHECK(step.sample->list.batch_invariant);
}

TEST_CASE("the table in docs/api.md is this one") {
  std::ifstream file(LLMRT_SOURCE_DIR "/docs/api.md");
  std::stringstream text;
  text << file.rdbuf();
  CHECK(text.str().find(print_compatibility()) != std::string::npos);
}

TEST_CASE("the prompts of one call share its lists") {
  auto body = server::read_json(R"({"prompt": ["a", "b", "c"], "max_tokens": 1, "logit_bias": {"65": 1},
                                    "bad_words": [[65, 66]], "stop": ["x"], "stop_token_ids": [7]})");
  REQUIRE(body.ok());
  auto parsed = server::parse_completion(body->as_object(), server::letter_model(), 7);
  const auto* call = std::get_if<server::ApiRequest>(&parsed);
  REQUIRE(call != nullptr);
  REQUIRE(call->prompts.size() == 3);
  const Request& first = call->prompts[0].request;
  for (const server::PromptRequest& prompt : call->prompts) {
    CHECK(prompt.request.sampling.logit_bias.shares_with(first.sampling.logit_bias));
    CHECK(prompt.request.sampling.bad_words.shares_with(first.sampling.bad_words));
    CHECK(prompt.request.stop.token_ids.shares_with(first.stop.token_ids));
    CHECK(prompt.request.stop.strings.automaton() == first.stop.strings.automaton());
  }
}
