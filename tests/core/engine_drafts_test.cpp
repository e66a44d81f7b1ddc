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

Told run(const std::vector<Request>& requests, const EngineConfig& config = small_config()) {
  SimClock clock;
  auto engine = Engine::create(config, make_fake_model(), make_fake_tokenizer(),
                               std::make_unique<FakeBackend>(FakeBackendConfig()), &clock, {});
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
  EngineConfig config = small_config();
  config.kv_tokens = 9 * 16;
  config.reserve_output_tokens = 0;
  config.watermark = 0;
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
