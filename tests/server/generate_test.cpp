// What `llmrt complete` and `llmrt chat` do around an engine of their own. Method: the backend of hashes.
#include "tools/llmrt/generate.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/fakes/fake_backend.h"
#include "tests/fakes/sim_clock.h"

using namespace llmrt;
using namespace llmrt::cli;
using namespace llmrt::test;
using Catch::Matchers::ContainsSubstring;

namespace {

server::ServedModel fake_served_model() {
  server::ServedModel model;
  model.id = "hashes";
  model.context_max = 64;
  model.vocab_size = kFakeVocab;
  model.tokenizer = make_fake_tokenizer();
  return model;
}

std::unique_ptr<Engine> make_engine(const Clock* clock, FakeBackendConfig backend) {
  EngineConfig config;
  config.context_max = 64;
  config.kv_tokens = 4 * 16;
  auto created = Engine::create(config, make_fake_model(), make_fake_tokenizer(),
                                std::make_unique<FakeBackend>(backend), clock, {});
  REQUIRE(created.ok());
  return std::move(*created);
}

Result<Answer> complete(Engine& engine, const boost::json::object& body) {
  const server::ServedModel model = fake_served_model();
  auto parsed = server::parse_completion(body, model, /*random_seed=*/1);
  REQUIRE(std::holds_alternative<server::ApiRequest>(parsed));
  return generate(engine, model, std::move(std::get<server::ApiRequest>(parsed)), {});
}

}  // namespace

TEST_CASE("an answer that ends with an error leaves nothing behind in the engine") {
  SimClock clock;
  const std::unique_ptr<Engine> engine = make_engine(&clock, {.best_logprob = 6.5f});  // refused where it is asked for
  const boost::json::object wrong = {{"prompt", {5, 6, 7}}, {"logprobs", 1}};
  for (int turn = 0; turn < 3; ++turn) {
    const Result<Answer> answer = complete(*engine, wrong);
    REQUIRE_FALSE(answer.ok());
    CHECK_THAT(answer.error().message, ContainsSubstring("expected at most 0, found"));
    CHECK(engine->stats().num_streaming == 0);
  }
  CHECK(complete(*engine, {{"prompt", {5, 6, 7}}, {"ignore_eos", true}}).ok());
  CHECK(engine->stats().num_streaming == 0);
}

TEST_CASE("every sampling number has an option, which stands in the body as the server reads it") {
  for (const SamplingParameter& parameter : kSamplingParameters) {
    std::string flag(parameter.flags);
    flag = flag.substr(0, flag.find(','));
    const auto values_of = [&](double value) {
      CLI::App app;
      SamplingValues values;
      values.add_options(app, "Sampling");
      app.parse(std::vector<std::string>{fmt::format("{}={}", flag, value)});
      return values;
    };
    CAPTURE(flag);
    CHECK_THROWS_AS(values_of(parameter.low - 1), CLI::ValidationError);
    CHECK_THROWS_AS(values_of(parameter.high + 1), CLI::ValidationError);
    const SamplingValues values = values_of(parameter.high);
    boost::json::object body;
    values.write(&body);
    REQUIRE(body.size() == 1);
    const boost::json::value& written = body.at(parameter.name);
    CHECK(written.is_int64() == parameter.is_whole());
    CHECK(written.to_number<double>() == parameter.high);
    CHECK(parameter.of(values.params()) == parameter.in_type(parameter.high));
  }
}

TEST_CASE("a seed may be negative, and none is none") {
  const auto fields = [](std::vector<std::string> arguments) {
    CLI::App app;
    SamplingOptions options;
    add_sampling_options(app, options, "what the context leaves");
    app.parse(std::move(arguments));
    boost::json::object body;
    write_fields(options, body);
    return body;
  };
  CHECK_FALSE(fields({}).contains("seed"));
  for (const std::string seed : {"-5", "-1", "0", "7", "-9223372036854775808"}) {
    CAPTURE(seed);
    for (const boost::json::object& body : {fields({"--seed=" + seed}), fields({seed, "--seed"})}) {  // from the last
      REQUIRE(body.contains("seed"));
      CHECK(body.at("seed") == std::stoll(seed));
    }
  }
}
