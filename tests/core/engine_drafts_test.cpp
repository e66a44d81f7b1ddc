// Answers with drafts are those without, token by token, with their log-probabilities and their ends; and drafts that
// are right save steps. Method: the backend of hashes, each request alone against the model's meaning (answer_alone).
#include <catch2/catch_test_macros.hpp>

#include "core/engine/engine.h"
#include "core/request/branch_constraint.h"
#include "core/request/draft_rules.h"
#include "core/speculate/ngram_drafter.h"
#include "tests/fakes/deny_list.h"
#include "tests/fakes/fake_backend.h"
#include "tests/fakes/fake_constraint.h"
#include "tests/fakes/processors.h"
#include "tests/fakes/scripted_drafts.h"
#include "tests/fakes/sim_clock.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

struct Sink final : EventSink {
  void on_events(std::span<const TokenEvent> events) override {
    for (const TokenEvent& event : events) {
      if (event.branch >= answers.size()) answers.resize(event.branch + 1);
      FakeAnswer& answer = answers[event.branch];
      if (event.token >= 0 && !event.is_prompt) answer.tokens.push_back(event.token);
      if (event.token >= 0 && event.has_logprob && !event.is_prompt) answer.logprobs.push_back(event.logprob);
      if (event.finish != FinishReason::kNone) answer.finish = event.finish;
    }
  }
  std::vector<FakeAnswer> answers;
};

struct Told {
  std::vector<FakeAnswer> answers;
  EngineStats stats;
};

std::vector<FakeAnswer> alone(const Request& request) {
  if (request.beam) return beams_alone(request, *make_fake_tokenizer(), 0);
  std::vector<FakeAnswer> answers;
  for (uint32_t branch = 0; branch < request.n; ++branch) {
    Request one = request;
    one.sampling.branch = branch;
    answers.push_back(answer_alone(one, *make_fake_tokenizer(), 0));
  }
  return answers;
}

EngineConfig small_config() {
  EngineConfig config;
  config.context_max = 200;
  config.kv_tokens = 40 * 16;
  config.sequences_max = 8;
  config.penalty_rows_max = 8;
  config.audit_steps = 1;
  return config;
}

// It takes a small part of what the model takes.
DraftParts draft_parts(FakeBackendConfig config) {
  config.step_ms = config.token_ms = 0.001;
  return {make_fake_model(), std::make_unique<FakeBackend>(config)};
}

// Some rows have to yield.
EngineConfig crowded_config() {
  EngineConfig config = small_config();
  config.kv_tokens = 9 * 16;
  config.reserve_output_tokens = 0;
  config.watermark = 0;
  return config;
}

Told run(const std::vector<Request>& requests, const EngineConfig& config = small_config(), DraftParts draft = {}) {
  SimClock clock;
  auto engine = Engine::create(config, make_fake_model(), make_fake_tokenizer(),
                               std::make_unique<FakeBackend>(FakeBackendConfig()), &clock, {}, std::move(draft));
  REQUIRE(engine.ok());
  Told told;
  std::vector<std::shared_ptr<Sink>> sinks;
  for (Request request : requests) {
    request.sink = sinks.emplace_back(std::make_shared<Sink>());
    REQUIRE((*engine)->submit(std::move(request)).ok());
  }
  for (bool worked = true; worked;) {
    const Result<bool> tick = (*engine)->tick();
    REQUIRE(tick.ok());
    worked = *tick;
  }
  for (const auto& sink : sinks)
    for (FakeAnswer& answer : sink->answers) told.answers.push_back(std::move(answer));
  told.stats = (*engine)->stats();
  return told;
}

Request plain_request() {
  Request request;
  request.prompt = {5, 6, 7, 8};
  request.max_tokens = 40;
  request.stop.ignore_eos = true;
  request.sampling.seed = 3;
  return request;
}

Request with_drafts(Request request, uint32_t right_of_16, bool always_as_many, uint32_t tokens_max = 4) {
  DraftScript script{.seed = 17,
                     .right_of_16 = right_of_16,
                     .always_as_many = always_as_many,
                     .vocab_size = static_cast<int32_t>(kFakeVocab)};
  for (const FakeAnswer& answer : alone(request)) script.answers.push_back(answer.tokens);
  request.speculation = Speculation{std::make_shared<ScriptedDrafts>(std::move(script)), tokens_max};
  return request;
}

Request with_draft_model(Request request, uint32_t tokens_max = 4) {
  request.speculation = Speculation{nullptr, tokens_max, /*by_model=*/true};
  return request;
}

// Constraints whose masks are there at once, late, and now and then never; some have places where the text is fixed.
void constrain(Request& request, FakeConstraintConfig config) {
  config.seed = 4;
  config.end_one_in = 200;
  request.stop.ignore_eos = false;
  request.constraint = std::make_shared<FakeConstraint>(config);
}

class SlowToFork final : public TokenConstraint {
 public:
  explicit SlowToFork(const FakeConstraintConfig& config) : fake_(config) {}
  std::unique_ptr<ConstraintMatcher> start() const override { return fake_.start(); }
  size_t held_bytes() const override { return fake_.held_bytes(); }
  bool forks_fast() const override { return false; }

 private:
  FakeConstraint fake_;
};

using Change = void (*)(Request&);
struct Feature {
  const char* name;
  Change change;
};
constexpr Feature kFeatures[] = {
    {"plain", [](Request&) {}},
    {"greedy", [](Request& r) { r.sampling.temperature = 0; }},
    {"penalties",
     [](Request& r) {
       r.sampling.repetition_penalty = 1.5f;
       r.sampling.frequency_penalty = 0.5f;
     }},
    {"bias",
     [](Request& r) {
       r.sampling.logit_bias = {{3, 1.0f}, {9, -2.0f}};
     }},
    {"n-gram bans", [](Request& r) { r.sampling.no_repeat_ngram_size = 2; }},
    {"bad words",
     [](Request& r) {
       r.sampling.bad_words = {{1, 2}, {7}, {3, 4}, {10, 11}, {20, 30}};
     }},
    {"min_tokens",
     [](Request& r) {
       r.stop.ignore_eos = false;
       r.stop.token_ids = {9, 10, 11, 12, 13, 14, 15, 16, 17, 18};
       r.min_tokens = 21;
     }},
    {"stop strings",
     [](Request& r) {
       r.stop.strings = {"abba", "bbb", "aaaaa"};
     }},
    {"a processor", [](Request& r) { r.processors = {std::make_shared<LimitRuns>(1)}; }},
    {"a grammar", [](Request& r) { constrain(r, {}); }},
    {"a grammar whose masks are late", [](Request& r) { constrain(r, {.asks_max = 2}); }},
    {"a grammar whose text is often fixed", [](Request& r) { constrain(r, {.fixed_of_16 = 10}); }},
    {"a grammar one of whose masks cannot be made", [](Request& r) { constrain(r, {.fail_one_in = 31}); }},
    {"a grammar, a processor and told draws",
     [](Request& r) {
       constrain(r, {.asks_max = 1, .fixed_of_16 = 4});
       r.processors = {std::make_shared<LimitRuns>(3)};
       r.sampling.tell_draws = true;
     }},
    {"a policy", [](Request& r) { r.policy = std::make_shared<DenyList>(std::vector<std::string>{"babab"}); }},
    {"log-probabilities",
     [](Request& r) {
       r.sampling.logprobs = 2;
       r.sampling.tell_draws = true;
     }},
    {"prompt log-probabilities",
     [](Request& r) {
       r.sampling.logprobs = 1;
       r.sampling.prompt_logprobs = true;
     }},
    {"several answers", [](Request& r) { r.n = 3; }},
    {"an answer that has begun",
     [](Request& r) {
       r.begun = {alone(r)[0].tokens[0], alone(r)[0].tokens[1]};
     }},
    {"batch-invariant", [](Request& r) { r.batch_invariant = true; }},
    {"few tokens", [](Request& r) { r.max_tokens = 2; }},
    {"all at once",
     [](Request& r) {
       r.sampling.presence_penalty = 0.7f;
       r.sampling.no_repeat_ngram_size = 3;
       r.sampling.bad_words = {{1, 2}, {7}};
       r.sampling.logprobs = 1;
       r.stop.strings = {"abbab"};
       r.min_tokens = 5;
       r.stop.ignore_eos = false;
       r.n = 2;
     }},
};

void check_same(const std::vector<FakeAnswer>& found, const Request& request) {
  const std::vector<FakeAnswer> expected = alone(request);
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    std::vector<int32_t> tokens = request.begun;
    tokens.insert(tokens.end(), found[i].tokens.begin(), found[i].tokens.end());
    CHECK(tokens == expected[i].tokens);
    CHECK(found[i].finish == expected[i].finish);
    if (request.sampling.logprobs >= 0) CHECK(found[i].logprobs == expected[i].logprobs);
  }
}

}  // namespace

TEST_CASE("answers with drafts are those without, whatever the request asks and whether drafts are right") {
  for (const Feature& feature : kFeatures) {
    for (const uint32_t right_of_16 : {0u, 13u, 16u}) {
      for (const bool always_as_many : {false, true}) {
        INFO(feature.name << ", " << right_of_16 << " of 16 right");
        Request request = plain_request();
        feature.change(request);
        const Told told = run({with_drafts(request, right_of_16, always_as_many)});
        check_same(told.answers, request);
        const DraftStats& drafts = told.stats.drafts;
        const bool may_have_none = request.constraint && right_of_16 == 0;  // the grammar forbids most of them
        if (request.max_tokens > 2 && !may_have_none) CHECK(drafts.num_proposed > 0);
        if (right_of_16 == 16 && always_as_many) CHECK(drafts.num_accepted * 2 >= drafts.num_proposed);
      }
    }
  }
}

TEST_CASE("drafts that are right save steps, and those of one row leave others as they are") {
  const Request request = plain_request();
  Request other = plain_request();
  other.prompt = {9, 9, 4};
  other.sampling.frequency_penalty = 1;
  const Told without = run({request, other}), with = run({with_drafts(request, 16, true), other});
  CHECK(with.answers[0].tokens == without.answers[0].tokens);
  CHECK(with.answers[1].tokens == without.answers[1].tokens);
  CHECK(run({with_drafts(request, 16, true)}).stats.num_steps <= 1 + 40 / 5 + 2);
  CHECK(with.stats.drafts.num_accepted == with.stats.drafts.num_proposed);
}

TEST_CASE("rows with drafts yield in a small pool, and their answers stay what they are") {
  const EngineConfig config = crowded_config();
  std::vector<Request> requests, asked;
  for (int32_t i = 0; i < 5; ++i) {
    Request request = plain_request();
    request.prompt.assign(20, 10 + i);
    request.max_tokens = 60;
    request.sampling.presence_penalty = i % 2 ? 0.5f : 0.0f;
    requests.push_back(request);
    asked.push_back(with_drafts(request, 12, false));
  }
  const Told told = run(asked, config);
  CHECK(told.stats.num_preemptions > 0);
  CHECK(told.stats.drafts.num_accepted > 0);
  for (size_t i = 0; i < requests.size(); ++i) check_same({told.answers[i]}, requests[i]);
}

TEST_CASE("requests that get no drafts are answered all the same") {
  const std::pair<std::string_view, Change> kCases[] = {
      {"beam search",
       [](Request& r) {
         r.n = 2;
         r.sampling = {};
         r.beam = BeamParams{};
       }},
      {"thought budget",
       [](Request& r) {
         r.stop.ignore_eos = false;
         r.constraint = std::make_shared<SlowToFork>(FakeConstraintConfig{.seed = 4, .end_one_in = 30});
       }},
      {"one token", [](Request& r) { r.max_tokens = 1; }},
  };
  REQUIRE(std::size(kCases) == std::size(kNoDrafts));
  for (size_t i = 0; i < std::size(kCases); ++i) {
    const auto& [name, change] = kCases[i];
    CHECK(kNoDrafts[i].name == name);
    Request request = plain_request();
    change(request);
    const Request asks = with_drafts(request, 16, true);
    CHECK_FALSE(gets_drafts(asks));
    const Told told = run({asks});
    CHECK(told.stats.drafts.num_proposed == 0);
    check_same(told.answers, request);
  }
}

TEST_CASE("a request that says nothing has the engine's drafts, and one that wants none has none") {
  EngineConfig config = small_config();
  config.ngram_drafts = true;
  Request request = plain_request();
  request.prompt = {5, 5, 5, 5, 5, 5};
  request.sampling.logit_bias = {{5, 1.0f}};
  for (int32_t token = 0; token < static_cast<int32_t>(kFakeVocab); ++token)
    if (token != 5) request.sampling.bad_words.push_back({token});  // it says nothing but 5
  const Told told = run({request}, config);
  CHECK(told.stats.drafts.num_proposed > 0);
  CHECK(told.stats.drafts.num_accepted == told.stats.drafts.num_proposed);
  check_same(told.answers, request);
  request.speculation = Speculation{};
  CHECK(run({request}, config).stats.drafts.num_proposed == 0);
}

TEST_CASE("where a grammar fixes the text its tokens are drafted, and none that it forbids") {
  Request request = plain_request();
  constrain(request, {.fixed_of_16 = 16});
  request.max_tokens = 41;
  request.speculation = Speculation{std::make_shared<NgramDrafts>(), 4};  // its text does not repeat itself
  const Told fixed = run({request});
  check_same(fixed.answers, request);
  CHECK(fixed.stats.drafts.num_accepted == fixed.stats.drafts.num_proposed);
  CHECK(fixed.stats.drafts.num_accepted >= 32);  // 41 tokens, five of a step
  constrain(request, {});
  const Told forbidden = run({with_drafts(request, 0, true)}), right = run({with_drafts(request, 16, true)});
  check_same(forbidden.answers, request);
  CHECK(right.stats.drafts.num_accepted == right.stats.drafts.num_proposed);
  Request free = plain_request();
  CHECK(forbidden.stats.drafts.num_proposed < run({with_drafts(free, 0, true)}).stats.drafts.num_proposed / 2);
}

TEST_CASE("the mask behind a draft is not that of its token elsewhere") {
  const auto two_allowed = [](const TokenMask& mask) {
    std::vector<int32_t> tokens;
    for (int32_t token = 2; token < static_cast<int32_t>(kFakeVocab) && tokens.size() < 2; ++token)
      if (mask.allows(token)) tokens.push_back(token);
    return tokens;
  };
  int num_checked = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const FakeConstraint constraint({.seed = seed, .end_one_in = 200});
    BranchConstraint branch(constraint, {});
    REQUIRE(branch.is_ready());
    const std::vector<int32_t> allowed = two_allowed(*branch.mask());
    if (allowed.size() < 2) continue;
    std::vector<int32_t> drafts = {allowed[0]};
    branch.follow(1, &drafts);
    const auto fresh = constraint.start();
    if (drafts.empty() || !fresh->advance(allowed[1]) || fresh->ended() || !fresh->advance(allowed[0])) continue;
    branch.advance(allowed[1]);
    branch.advance(allowed[0]);
    REQUIRE(branch.is_ready());
    if (fresh->ended()) continue;
    CHECK(branch.mask()->digest() == fresh->next().mask->digest());
    ++num_checked;
  }
  CHECK(num_checked > 3);
}

// ---- a draft model -------------------------------------------------------------------------------------------------

TEST_CASE("answers with a draft model are those without, whatever the request asks and however often it is wrong") {
  for (const Feature& feature : kFeatures) {
    for (const uint32_t wrong_of_16 : {0u, 4u, 16u}) {
      INFO(feature.name << ", " << wrong_of_16 << " of 16 wrong");
      Request request = plain_request();
      feature.change(request);
      const Told told = run({with_draft_model(request)}, small_config(), draft_parts({.wrong_of_16 = wrong_of_16}));
      check_same(told.answers, request);
      const DraftStats& drafts = told.stats.drafts;
      if (request.max_tokens > 2 && !request.constraint) CHECK(drafts.num_model_proposed > 0);
      CHECK(drafts.num_model_proposed <= drafts.num_proposed);
      if (wrong_of_16 == 4 && feature.name == kFeatures[0].name) CHECK(drafts.num_model_accepted >= 15);
      if (wrong_of_16 == 16 && feature.name == kFeatures[0].name) CHECK(drafts.num_model_accepted == 0);
    }
  }
}

TEST_CASE("a draft model that is the model's twin is always right, greedy or sampled, with several answers") {
  for (const float temperature : {0.0f, 1.0f}) {
    Request request = plain_request();
    request.sampling.temperature = temperature;
    request.n = 3;
    const Told told = run({with_draft_model(request)}, small_config(), draft_parts({}));
    check_same(told.answers, request);
    CHECK(told.stats.drafts.num_model_proposed > 0);
    CHECK(told.stats.drafts.num_model_accepted == told.stats.drafts.num_model_proposed);
    CHECK(told.stats.num_steps <= 1 + 40 / 5 + 3);
  }
}

TEST_CASE("a twin stays right where rows yield in a small pool and their places are taken") {
  const EngineConfig config = crowded_config();
  std::vector<Request> requests, asked;
  for (int32_t i = 0; i < 6; ++i) {
    Request request = plain_request();
    request.prompt.assign(20, 10 + i);
    request.max_tokens = 60;
    requests.push_back(request);
    asked.push_back(with_draft_model(request));
  }
  const Told told = run(asked, config, draft_parts({}));
  CHECK(told.stats.num_preemptions > 0);
  CHECK(told.stats.drafts.num_model_accepted > 0);
  CHECK(told.stats.drafts.num_model_accepted == told.stats.drafts.num_model_proposed);
  for (size_t i = 0; i < requests.size(); ++i) check_same({told.answers[i]}, requests[i]);
}

TEST_CASE("a draft model reads a long prompt in parts, and drafts when it has read it") {
  EngineConfig config = small_config();
  config.step_tokens_max = 16;
  Request request = plain_request();
  request.prompt.assign(100, 7);
  uint64_t tokens_read = 0;
  const Told told = run({with_draft_model(request)}, config, draft_parts({.tokens_read = &tokens_read}));
  check_same(told.answers, request);
  CHECK(told.stats.drafts.num_model_accepted > 0);
  CHECK(told.stats.drafts.num_model_accepted == told.stats.drafts.num_model_proposed);
  CHECK(told.stats.drafts.model_read_ms > 0);
  CHECK(tokens_read >= 100);
}

TEST_CASE("what a draft model has read of a prompt serves the next branch that begins so, but none with another salt") {
  const auto tokens_read = [](const char* second_salt) {
    SimClock clock;
    uint64_t count = 0;
    auto engine = Engine::create(small_config(), make_fake_model(), make_fake_tokenizer(),
                                 std::make_unique<FakeBackend>(FakeBackendConfig()), &clock, {},
                                 draft_parts({.tokens_read = &count}));
    REQUIRE(engine.ok());
    Request request = with_draft_model(plain_request());
    request.prompt.assign(100, 7);
    request.cache_salt = "a";
    for (const char* salt : {"a", second_salt}) {
      const uint64_t before = count;
      request.cache_salt = salt;
      request.sink = std::make_shared<Sink>();
      REQUIRE((*engine)->submit(request).ok());
      for (Result<bool> worked = true; *worked;) {
        worked = (*engine)->tick();
        REQUIRE(worked.ok());
      }
      count -= before;
    }
    return count;
  };
  CHECK(tokens_read("a") < 100);
  CHECK(tokens_read("b") >= 100);
}

TEST_CASE("with both, the model drafts where the text gives nothing") {
  Request request = plain_request();
  DraftScript script{.right_of_16 = 16, .vocab_size = kFakeVocab};
  for (const FakeAnswer& answer : alone(request)) script.answers.push_back(answer.tokens);
  Request both = request;
  both.speculation = Speculation{std::make_shared<ScriptedDrafts>(std::move(script)), 4, /*by_model=*/true};
  const Told told = run({both}, small_config(), draft_parts({}));
  check_same(told.answers, request);
  const DraftStats& drafts = told.stats.drafts;
  CHECK(drafts.num_model_proposed > 0);
  CHECK(drafts.num_proposed > drafts.num_model_proposed);
  CHECK(drafts.num_accepted == drafts.num_proposed);
}

TEST_CASE("a request that says nothing has the engine's draft model; without one it cannot ask for it") {
  EngineConfig config = small_config();
  config.model_drafts = true;
  const Request request = plain_request();
  CHECK(run({request}, config, draft_parts({})).stats.drafts.num_model_accepted > 0);
  Request none = request;
  none.speculation = Speculation{};
  CHECK(run({none}, config, draft_parts({})).stats.drafts.num_proposed == 0);
  SimClock clock;
  auto engine = Engine::create(config, make_fake_model(), make_fake_tokenizer(),
                               std::make_unique<FakeBackend>(FakeBackendConfig()), &clock, {});
  REQUIRE(engine.ok());
  CHECK((*engine)->submit(with_draft_model(request)).error().code == ErrorCode::kUnsupported);
  CHECK((*engine)->submit(request).ok());
}

TEST_CASE("a draft model with other tokens, or with a state, is refused by name") {
  const auto error_of = [](std::shared_ptr<const Model> model, std::shared_ptr<const Model> draft) {
    SimClock clock;
    auto engine =
        Engine::create(small_config(), std::move(model), nullptr, std::make_unique<FakeBackend>(FakeBackendConfig()),
                       &clock, {}, {std::move(draft), std::make_unique<FakeBackend>(FakeBackendConfig())});
    return engine.ok() ? "" : engine.error().message;
  };
  const auto with_tokens = [](std::vector<std::string> tokens, std::vector<TokenType> types) {
    auto model = std::make_shared<Model>(*make_fake_model());
    model->vocabulary.emplace();
    model->vocabulary->tokens = std::move(tokens);
    model->vocabulary->types = std::move(types);
    return model;
  };
  const auto model = with_tokens({"a", "b"}, {TokenType::kNormal, TokenType::kNormal});
  const std::string other = error_of(model, with_tokens({"a", "c"}, {TokenType::kNormal, TokenType::kNormal}));
  CHECK(other.find("expected the model's tokens (2 tokens, ") != std::string::npos);
  CHECK(other.find("found others (2 tokens, ") != std::string::npos);
  CHECK(error_of(model, make_fake_model()).find("without a tokenizer") != std::string::npos);
  const auto padded = with_tokens({"a", "b", "<pad>"}, {TokenType::kNormal, TokenType::kNormal, TokenType::kUnused});
  CHECK(error_of(model, padded).empty());
  CHECK(
      error_of(make_fake_model(), make_fake_model(/*is_hybrid=*/true)).find("expected one without recurrent layers") !=
      std::string::npos);
}

namespace {

// A model with a state beside its attention, whose drafts of all kinds may be wrong. It runs alone or is crowded.
void check_states(const Request& plain, const Request& with, const EngineConfig& config, bool has_draft_model) {
  SimClock clock;
  FakeBackendConfig backend;
  backend.groups = {{}, {.is_state = true}};
  auto engine = Engine::create(config, make_fake_model(/*is_hybrid=*/true), make_fake_tokenizer(),
                               std::make_unique<FakeBackend>(backend), &clock, {},
                               has_draft_model ? draft_parts({}) : DraftParts{});
  REQUIRE(engine.ok());
  std::vector<std::shared_ptr<Sink>> sinks;
  for (uint32_t i = 0; i < 4; ++i) {
    Request request = with;
    request.sink = sinks.emplace_back(std::make_shared<Sink>());
    REQUIRE((*engine)->submit(std::move(request)).ok());
  }
  Result<bool> worked = true;
  while (worked.ok() && *worked) worked = (*engine)->tick();
  INFO((worked.ok() ? "" : worked.error().message));
  REQUIRE(worked.ok());
  for (const auto& sink : sinks) {
    REQUIRE(sink->answers.size() == plain.n);
    for (uint32_t branch = 0; branch < plain.n; ++branch) {
      Request one = plain;
      one.sampling.branch = branch;
      const FakeAnswer expected = answer_alone(one, *make_fake_tokenizer(), 0, backend.groups);
      CHECK(sink->answers[branch].tokens == expected.tokens);
      CHECK(sink->answers[branch].finish == expected.finish);
    }
  }
  const DraftStats& drafts = (*engine)->stats().drafts;
  CHECK(drafts.num_proposed > 0);
  CHECK(drafts.num_proposed <= 3 * drafts.num_runs);
}

}  // namespace

TEST_CASE("a model with states answers as without drafts, of texts, of a grammar and of a draft model") {
  for (const bool is_crowded : {false, true}) {
    const EngineConfig config = is_crowded ? crowded_config() : small_config();
    for (const Feature& feature : kFeatures) {
      if (std::string_view(feature.name) == "an answer that has begun") continue;  // begun as the other model would
      INFO(feature.name << (is_crowded ? ", crowded" : ""));
      Request plain = plain_request();
      plain.max_tokens = 70;  // past a multiple of 64
      feature.change(plain);
      if (plain.max_tokens < 4) continue;
      for (const uint32_t right_of_16 : {9u, 15u}) {
        Request with = plain;
        DraftScript script{.seed = 17, .right_of_16 = right_of_16, .vocab_size = static_cast<int32_t>(kFakeVocab)};
        for (uint32_t branch = 0; branch < plain.n; ++branch) {
          Request one = plain;
          one.sampling.branch = branch;
          const FakeGroup groups[] = {{}, {.is_state = true}};
          script.answers.push_back(answer_alone(one, *make_fake_tokenizer(), 0, groups).tokens);
        }
        with.speculation = Speculation{std::make_shared<ScriptedDrafts>(std::move(script)), 7};
        check_states(plain, with, config, false);
      }
      if (!plain.constraint) check_states(plain, with_draft_model(plain), config, true);
    }
  }
}

TEST_CASE("a draft model's device that is lost is everybody's; one whose numbers are not finite drafts no more") {
  const Request request = plain_request();
  const Told poisoned = run({with_draft_model(request)}, small_config(), draft_parts({.poison = 1}));
  check_same(poisoned.answers, request);
  CHECK(poisoned.stats.drafts.num_proposed == 0);
  SimClock clock;
  auto engine = Engine::create(small_config(), make_fake_model(), make_fake_tokenizer(),
                               std::make_unique<FakeBackend>(FakeBackendConfig()), &clock, {},
                               draft_parts({.lost_at_submit = 6}));
  REQUIRE(engine.ok());
  const auto sink = std::make_shared<Sink>();
  Request asked = with_draft_model(request);
  asked.sink = sink;
  REQUIRE((*engine)->submit(std::move(asked)).ok());
  Result<bool> worked = true;
  while (worked.ok() && *worked) worked = (*engine)->tick();
  REQUIRE_FALSE(worked.ok());
  CHECK(worked.error().code == ErrorCode::kDeviceLost);
  CHECK(sink->answers.at(0).finish == FinishReason::kError);
}

TEST_CASE("the model and its draft model share the memory of the pool, a block of each for the other") {
  EngineConfig config = small_config();
  config.kv_tokens = 0;
  const auto plan_of = [&config](DraftParts draft) {
    SimClock clock;
    auto engine = Engine::create(config, make_fake_model(), make_fake_tokenizer(),
                                 std::make_unique<FakeBackend>(FakeBackendConfig()), &clock, {}, std::move(draft));
    REQUIRE(engine.ok());
    return (*engine)->memory_plan();
  };
  const MemoryPlan alone = plan_of({}), pair = plan_of(draft_parts({}));
  CHECK(pair.draft_block_bytes == pair.block_bytes);
  CHECK(pair.draft_pool_bytes == pair.pool_bytes);
  CHECK(pair.blocks_by_memory * 2 <= alone.blocks_by_memory);
  CHECK(pair.blocks_by_memory * 2 + 2 > alone.blocks_by_memory);
}
