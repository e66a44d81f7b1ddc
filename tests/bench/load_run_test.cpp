// What a load run is made of, but for its sockets: lengths, gaps, files, streams cut anywhere, figures over outcomes,
// and requests on an engine whose steps take a time that is told beforehand.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>
#include <map>

#include "tests/bench/timed_backend.h"
#include "tools/llmrt_bench/load/adapter_mix.h"
#include "tools/llmrt_bench/load/answer_stream.h"
#include "tools/llmrt_bench/load/arrivals.h"
#include "tools/llmrt_bench/load/engine_load.h"
#include "tools/llmrt_bench/load/load_report.h"
#include "tools/llmrt_bench/load/structured.h"
#include "tools/llmrt_bench/record/stats.h"
#include "tools/llmrt_bench/serving/loaded_device.h"
#include "tools/llmrt_bench/serving/schemas.h"
#include "tools/llmrt_bench/serving/vocabulary.h"

using namespace llmrt;
using namespace llmrt::bench;
using namespace llmrt::test;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

// Squares' mean over the mean's square, less 1.
double variation(const std::vector<double>& values) {
  return stddev(values) * stddev(values) / (mean(values) * mean(values));
}

std::vector<double> gaps_of(const std::string& text, size_t count, double per_s) {
  Draws draws(5);
  const std::vector<double> times_s = parse_arrivals("", text)->times_s(count, per_s, &draws);
  std::vector<double> gaps;
  for (size_t i = 1; i < times_s.size(); ++i) gaps.push_back(times_s[i] - times_s[i - 1]);
  return gaps;
}

Outcome outcome_of(std::vector<TimeNs> times_ms, TimeNs end_ms, uint32_t tokens) {
  Outcome outcome;
  for (const TimeNs time_ms : times_ms) outcome.times_ns.push_back(time_ms * kMs);
  outcome.end_ns = end_ms * kMs;
  outcome.asked_tokens = outcome.output_tokens = tokens;
  return outcome;
}

// Counts characters.
class Characters final : public TokenCounter {
 public:
  size_t count(std::string_view text) const override { return text.size(); }
};

struct EngineBed {
  EngineBed(uint32_t context_max, uint32_t sequences_max) {
    auto backend = std::make_unique<TimedBackend>(&clock, FakeBackendConfig(), &num_loads);
    timed = backend.get();
    auto loaded = LoadedDevice::load(std::move(backend), model, &clock);
    REQUIRE(loaded.ok());
    device = std::move(*loaded);
    EngineConfig config;
    config.context_max = context_max;
    config.sequences_max = sequences_max;
    config.prefix_cache = PrefixCacheKind::kOff;
    auto made = device.make_engine(config);
    REQUIRE(made.ok());
    engine = std::move(*made);
  }
  std::vector<Outcome> run(const std::vector<EngineItem>& items, const EngineLoadOptions& options) {
    auto outcomes = run_on_engine(
        engine.get(), clock, [&](TimeNs then) { clock.sleep_until(then); }, items, options, [](const Outcome*) {});
    REQUIRE(outcomes.ok());
    return *outcomes;
  }

  SimClock clock;
  int num_loads = 0;
  const TimedBackend* timed = nullptr;
  std::shared_ptr<const Model> model = make_fake_model();
  LoadedDevice device;
  std::unique_ptr<Engine> engine;
};

std::vector<EngineItem> equal_items(size_t count, uint32_t prompt_tokens, uint32_t output_tokens) {
  Draws draws(1);
  std::vector<EngineItem> items;
  for (size_t i = 0; i < count; ++i) items.push_back({{}, draws.tokens(prompt_tokens, kFakeVocab), output_tokens});
  return items;
}

}  // namespace

TEST_CASE("log-normal lengths have their median and spread, and keep their bounds") {
  const Result<Lengths> lengths = parse_lengths("", "lognormal:100:0.5:20:400");
  REQUIRE(lengths.ok());
  Draws draws(1);
  std::vector<double> logs;
  uint32_t least = ~0u, most = 0;
  for (int i = 0; i < 20000; ++i) {
    const uint32_t length = lengths->draw(&draws);
    least = std::min(least, length);
    most = std::max(most, length);
    logs.push_back(std::log(length));
  }
  CHECK_THAT(median(logs), WithinAbs(std::log(100), 0.02));
  CHECK_THAT(stddev(logs), WithinAbs(0.5, 0.02));
  CHECK(least >= 20);
  CHECK(most == 400);
  CHECK(parse_lengths("", "7")->draw(&draws) == 7);
}

TEST_CASE("gaps have the asked mean and the variation of their kind") {
  CHECK_THAT(mean(gaps_of("constant", 100, 4)), WithinRel(0.25, 1e-9));
  const auto poisson = gaps_of("poisson", 50000, 4), gamma = gaps_of("gamma:0.25", 50000, 4);
  const auto smooth = gaps_of("gamma:4", 50000, 4), pareto = gaps_of("pareto:3", 50000, 4);
  for (const auto& gaps : {poisson, gamma, smooth, pareto}) CHECK_THAT(mean(gaps), WithinRel(0.25, 0.03));
  CHECK_THAT(variation(poisson), WithinRel(1, 0.05));
  CHECK_THAT(variation(gamma), WithinRel(4, 0.1));
  CHECK_THAT(variation(smooth), WithinRel(0.25, 0.05));
  CHECK(std::ranges::min(pareto) >= 0.25 * 2 / 3);  // its scale
  const auto bursts = gaps_of("burst:5", 21, 10);
  for (size_t i = 0; i < bursts.size(); ++i) CHECK_THAT(bursts[i], WithinAbs((i + 1) % 5 == 0 ? 0.5 : 0, 1e-9));
}

TEST_CASE("a workload comes back from its file as it was") {
  Draws draws(1);
  std::vector<LoadItem> items =
      make_work(20, *parse_lengths("", "lognormal:20:1:1:100"), *parse_lengths("", "9"), &draws);
  for (size_t i = 0; i < items.size(); ++i) items[i].arrival_s = rounded_s(0.1 * static_cast<double>(i) / 3);
  items[3].prompt = "\"quoted\"\n\xc3\xa4";
  const std::string text = format_work(items);
  const auto back = parse_work(text, "file");
  REQUIRE(back.ok());
  CHECK(format_work(*back) == text);
  CHECK((*back)[3].prompt == items[3].prompt);
  const auto counted = parse_work("{\"prompt_tokens\": 5, \"output_tokens\": 2}\r\n\n", "file");
  REQUIRE(counted.ok());
  CHECK(std::ranges::count((*counted)[0].prompt, ' ') == 4);
}

TEST_CASE("shares of the requests ask for structure, and come back from a file as they were") {
  Draws draws(1);
  std::vector<LoadItem> items = make_work(200, *parse_lengths("", "20"), *parse_lengths("", "9"), &draws);
  add_structure({.schemas = 0.5, .tools = 0.25}, &draws, &items);
  const auto schemas = std::ranges::count_if(items, [](const LoadItem& item) { return !item.schema.is_null(); });
  const auto tools = std::ranges::count_if(items, [](const LoadItem& item) { return !item.tools.empty(); });
  const auto required = std::ranges::count(items, boost::json::value("required"), &LoadItem::tool_choice);
  CHECK_THAT(static_cast<double>(schemas), WithinAbs(100, 25));
  CHECK_THAT(static_cast<double>(tools), WithinAbs(50, 20));
  CHECK(required == (tools + 1) / 2);
  const std::string text = format_work(items);
  const auto back = parse_work(text, "file");
  REQUIRE(back.ok());
  CHECK(format_work(*back) == text);
  for (const char* bad : {R"("schema": [])", R"("tools": [])", R"("tools": [1])", R"("tool_choice": "auto")",
                          R"("tools": [{}], "tool_choice": 4)"})
    CHECK_FALSE(parse_work(fmt::format(R"({{"prompt": "a", "output_tokens": 1, {}}})", bad), "file").ok());
}

TEST_CASE("adapters are asked for by a Zipf law, the same ones for the same seed") {
  const Result<AdapterMix> mix = parse_adapter_mix("--adapters", "4:1.5");
  REQUIRE(mix.ok());
  CHECK(mix->name() == "4:1.5");
  CHECK(parse_adapter_mix("", "7")->name() == "7:1");
  CHECK(parse_adapter_mix("", "none")->name() == "none");
  for (const char* bad : {"", "0", "5000", "4:", ":1", "4:-1", "4:11", "4:nan", "4:1x", "some"})
    CHECK_FALSE(parse_adapter_mix("", bad).ok());
  constexpr int kDraws = 20000;
  const double sum = 1 + std::pow(2, -1.5) + std::pow(3, -1.5) + std::pow(4, -1.5);
  AdapterDraws draws(*mix, 3), again(*mix, 3), evenly({4, 0}, 3);
  std::map<uint32_t, int> counts, even_counts;
  for (int i = 0; i < kDraws; ++i) {
    const uint32_t adapter = draws.next();
    REQUIRE(adapter == again.next());
    ++counts[adapter];
    ++even_counts[evenly.next()];
  }
  REQUIRE(counts.size() == 4);
  for (const auto& [adapter, count] : counts) {
    CHECK_THAT(count, WithinAbs(kDraws * std::pow(adapter, -1.5) / sum, 4 * std::sqrt(kDraws)));
    CHECK_THAT(even_counts[adapter], WithinAbs(kDraws / 4.0, 4 * std::sqrt(kDraws)));
  }
  CHECK(AdapterDraws({}, 1).next() == 0);
}

TEST_CASE("what was asked of each adapter is counted, and comes back from a file") {
  Draws draws(1);
  std::vector<LoadItem> items = make_work(4, *parse_lengths("", "20"), *parse_lengths("", "9"), &draws);
  items[0].adapter = 7;
  items[2].adapter = items[3].adapter = 2;
  const auto back = parse_work(format_work(items), "file");
  REQUIRE(back.ok());
  CHECK((*back)[0].adapter == 7);
  CHECK((*back)[1].adapter == 0);
  for (const char* bad : {"0", "4097", "\"a\"", "1.5"})
    CHECK_FALSE(parse_work(fmt::format(R"({{"prompt": "a", "output_tokens": 1, "adapter": {}}})", bad), "file").ok());
  std::vector<Outcome> outcomes(4, outcome_of({10, 20}, 20, 2));
  outcomes[1].failure = outcomes[3].failure = Failure::kTimeout;
  const auto counts = count_adapters(items, outcomes);
  REQUIRE(counts.size() == 2);
  CHECK(counts[0].adapter == 2);
  CHECK(counts[0].num_requests == 2);
  CHECK(counts[0].num_completed == 1);
  CHECK(counts[1].ttft_ms == std::vector<double>{10});
  CHECK(adapters_text(counts) == "adapters: 2 asked for by 3 requests, the most popular by 2\n");
  CHECK(adapters_json(counts)[1].at("adapter") == 7);
  CHECK(adapters_text({}).empty());
}

TEST_CASE("of a ShareGPT file those are drawn that a human begins and that are neither short nor long") {
  const std::string text = R"([
    {"conversations": [{"from": "human", "value": "12345"}, {"from": "gpt", "value": "1234567"}]},
    {"conversations": [{"from": "gpt", "value": "12345"}, {"from": "human", "value": "1234567"}]},
    {"conversations": [{"from": "human", "value": "123"}, {"from": "gpt", "value": "1234567"}]},
    {"conversations": []}])";
  Draws draws(1);
  const auto items = parse_sharegpt(text, Characters(), 10, &draws);
  REQUIRE(items.ok());
  REQUIRE(items->size() == 1);
  CHECK((*items)[0].prompt == "12345");
  CHECK((*items)[0].output_tokens == 7);
  for (const char* bad : {"", "{}", "[1]", R"([{"conversations": 3}])", "[]"})
    CHECK_FALSE(parse_sharegpt(bad, Characters(), 10, &draws).ok());
}

TEST_CASE("a stream says the same wherever it is cut") {
  const std::string stream =
      ": a comment\r\n\r\ndata: {\"choices\": [{\"delta\": {\"role\": \"assistant\", \"content\": \"\"}}]}\n\n"
      "event: x\ndata: {\"choices\":\ndata: [{\"delta\": {\"content\": \"a\"}}]}\n\n"
      "data:{\"choices\": [{\"delta\": {\"reasoning_content\": \"b\"}, \"finish_reason\": null}]}\r\n\r\n"
      "data: {\"choices\": [{\"text\": \"\", \"token_ids\": [5]}]}\n\n"
      "data: {\"choices\": [{\"text\": \"\", \"token_ids\": [], \"finish_reason\": \"stop\"}], \"usage\": null}\n\n"
      "data: {\"choices\": [], \"usage\": {\"completion_tokens\": 3, \"prompt_tokens\": 11}}\n\ndata: [DONE]\n\n";
  for (size_t cut = 0; cut < stream.size(); ++cut) {
    Outcome outcome;
    outcome.asked_tokens = 3;
    AnswerStream answer(&outcome);
    if (answer.feed(stream.substr(0, cut), 1)) answer.feed(stream.substr(cut), 2);
    INFO("cut at " << cut << ": " << outcome.failure_detail);
    REQUIRE_FALSE(outcome.failure);
    CHECK(outcome.times_ns.size() == 3);
    CHECK(outcome.output_tokens == 3);
    CHECK(outcome.prompt_tokens == 11);
    CHECK(outcome.end_ns == 2);
  }
  Outcome cut;
  cut.asked_tokens = 3;
  AnswerStream answer(&cut);
  CHECK(answer.feed("data: {\"choices\": [{\"text\": \"a\"}]}\n\n", 1));
  answer.end(2);
  CHECK(cut.failure == Failure::kCutStream);
}

TEST_CASE("pieces of calls become calls wherever the stream is cut, and are counted by what they hold") {
  const std::string stream =
      R"(data: {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}}]})"
      "\n\n"
      R"(data: {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{\"a\": "}}]}}]})"
      "\n\n"
      R"(data: {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}},)"
      R"( {"index": 1, "function": {"name": "g", "arguments": "{"}}, {"index": 999999}]},)"
      R"( "finish_reason": "tool_calls"}]})"
      "\n\ndata: [DONE]\n\n";
  Outcome outcome;
  for (size_t cut = 0; cut < stream.size(); cut += 7) {
    outcome = {};
    outcome.asked_tokens = 9;
    outcome.is_structured = true;
    AnswerStream answer(&outcome);
    if (answer.feed(stream.substr(0, cut), 1)) answer.feed(stream.substr(cut), 2);
    REQUIRE_FALSE(outcome.failure);
    CHECK(outcome.times_ns.size() == 3);
    CHECK(outcome.finish_reason == "tool_calls");
    REQUIRE(outcome.answer.calls.size() == 2);
    CHECK(outcome.answer.calls[0].arguments == R"({"a": 1})");
  }
  LoadItem item;
  item.tools = boost::json::parse(R"([{"type": "function", "function": {"name": "f", "parameters":
      {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}])")
                   .as_array();
  item.tool_choice = "required";
  Outcome silent = outcome_of({1, 2}, 2, 2);
  const StructureCounts counts = count_structure(std::vector{item, item}, std::vector{outcome, silent});
  CHECK(counts.tools_required == 2);
  CHECK(counts.required_without_call == 1);
  CHECK(counts.calls == 2);
  CHECK(counts.calls_known == 1);
  CHECK(counts.calls_parsed == 1);
  CHECK(counts.calls_fit == 1);
  item = {};
  item.schema = {{"type", "object"}, {"required", {"b"}}};
  outcome.answer.content = R"({"c": 1})";
  silent.answer.content = "{";
  const StructureCounts schemas = count_structure(std::vector{item, item}, std::vector{outcome, silent});
  CHECK(schemas.schemas == 2);
  CHECK(schemas.schemas_parsed == 1);
  CHECK(schemas.schemas_fit == 0);
}

TEST_CASE("an answer without an end is not kept") {
  Outcome outcome;
  outcome.asked_tokens = 1000;
  outcome.is_structured = true;
  AnswerStream answer(&outcome);
  const std::string event =
      "data: {\"choices\": [{\"delta\": {\"content\": \"" + std::string(kAnswerBytesMax / 8, 'x') + "\"}}]}\n\n";
  for (int i = 0; i < 20; ++i) {
    REQUIRE(answer.feed(event, i));
    CHECK(outcome.answer.content.size() <= kAnswerBytesMax);
  }
  CHECK(outcome.answer.content.empty());
}

TEST_CASE("figures are of the requests that did not fail, failures are counted by kind") {
  std::vector<Outcome> outcomes = {outcome_of({100, 120, 140}, 150, 3), outcome_of({200, 260}, 260, 4),
                                   outcome_of({300}, 300, 1), outcome_of({}, 400, 1)};
  outcomes[1].asked_tokens = 6;
  outcomes[3].failure = Failure::kStatus;
  outcomes[3].http_status = 429;
  const Summary summary = summarize(outcomes, {.ttft_ms = 250, .tpot_ms = 20});
  CHECK(summary.num_requests == 4);
  CHECK(summary.num_completed == 3);
  CHECK(summary.failures == std::map<std::string, size_t>{{"status 429", 1}});
  CHECK(summary.num_good == 2);
  CHECK(summary.output_tokens == 8);
  CHECK(summary.num_stopped_early == 1);
  CHECK(summary.tokens_short == 2);
  CHECK_THAT(summary.seconds, WithinRel(0.4, 1e-9));
  CHECK_THAT(summary.ttft_ms.p50, WithinRel(200, 1e-9));
  CHECK_THAT(summary.ttft_ms.p90, WithinRel(280, 1e-9));
  CHECK(summary.tpot_ms.samples == std::vector<double>{20, 20});  // 60 ms between the first and the fourth token
  CHECK(summary.itl_ms.samples == std::vector<double>{20, 20, 60});
}

TEST_CASE("what nobody has is not known, and no zero") {
  const LoadSlo slo{.ttft_ms = 250, .tpot_ms = 1};
  std::vector<Outcome> outcomes = {outcome_of({100}, 150, 1), outcome_of({200}, 260, 4), outcome_of({}, 400, 1)};
  outcomes[2].failure = Failure::kTimeout;
  const Summary summary = summarize(outcomes, slo);
  CHECK(summary.num_good == 2);  // no gap is too long
  CHECK(summary.ttft_ms.samples.size() == 2);
  for (const Distribution* of : {&summary.tpot_ms, &summary.itl_ms}) {
    CHECK(of->samples.empty());
    for (const double figure : {of->mean, of->p50, of->p90, of->p95, of->p99}) CHECK(std::isnan(figure));
  }
  const std::string text = load_text(summary, slo);
  INFO(text);
  CHECK(text.find("| TPOT, ms       |          - |          - |") != std::string::npos);
  CHECK(text.find("no TPOT, as one token or one chunk has none: 2 requests") != std::string::npos);
  CHECK(text.find("nan") == std::string::npos);
  CHECK_FALSE(slo.is_met(outcomes[2]));
  outcomes[2].failure.reset();  // nothing came, whatever the reason
  CHECK_FALSE(slo.is_met(outcomes[2]));
}

TEST_CASE("a closed loop on an engine keeps so many running, and times are the steps'") {
  EngineBed bed(256, 8);
  const auto outcomes = bed.run(equal_items(12, 32, 5), {.concurrency = 3});
  for (const Outcome& outcome : outcomes) {
    CHECK_FALSE(outcome.failure);
    CHECK(outcome.output_tokens == 5);
    CHECK(outcome.prompt_tokens == 32);
    // A step takes 0.1 ms, 0.01 a token, and little for keys.
    CHECK(*outcome.ttft_ms() < 0.1 + 3 * 0.33 + 0.2);
    CHECK_THAT(*outcome.tpot_ms(), WithinAbs(0.13, 0.02));
  }
  size_t most = 0;
  for (const Outcome& one : outcomes)
    most = std::max<size_t>(most, static_cast<size_t>(std::ranges::count_if(outcomes, [&](const Outcome& other) {
                              return other.due_ns <= one.due_ns && one.due_ns < other.end_ns;
                            })));
  CHECK(most == 3);
}

TEST_CASE("arrivals on an engine count from when they were due, and what it refuses is an outcome") {
  EngineBed bed(128, 2);
  std::vector<EngineItem> items = equal_items(6, 100, 10);
  for (size_t i = 0; i < items.size(); ++i) items[i].arrival_s = 1e-4 * static_cast<double>(i);
  items[2].output_tokens = 1000;  // never fits
  const auto outcomes = bed.run(items, {});
  for (size_t i = 0; i < items.size(); ++i) {
    CHECK_THAT(ms_between(outcomes[0].due_ns, outcomes[i].due_ns), WithinAbs(0.1 * static_cast<double>(i), 1e-6));
    CHECK(outcomes[i].failure.has_value() == (i == 2));
  }
  CHECK(outcomes[2].failure == Failure::kRefused);
  CHECK(outcomes[5].ttft_ms() > outcomes[0].ttft_ms());
}

TEST_CASE("requests on an engine have the adapters that they ask for") {
  EngineBed bed(128, 4);
  const std::vector<ReadyAdapter> adapters = {{nullptr, 1, 8, {}}, {nullptr, 2, 8, {}}, {nullptr, 3, 8, {}}};
  std::vector<EngineItem> items = equal_items(6, 20, 3);
  items[0].adapter = items[1].adapter = items[4].adapter = 3;
  items[2].adapter = 1;
  EngineLoadOptions options{.concurrency = 2};
  options.adapters = adapters;
  for (const Outcome& outcome : bed.run(items, options)) CHECK_FALSE(outcome.failure);
  CHECK(bed.timed->adapted_prompts() == std::map<uint32_t, size_t>{{1, 1}, {3, 3}});
}

TEST_CASE("requests with a schema are compiled when they come, and their answers fit") {
  EngineBed bed(1500, 2);
  std::vector<EngineItem> items = equal_items(3, 20, 1300);
  Draws draws(3);
  for (EngineItem& item : items) item.schema = make_schema(&draws);
  items.push_back(equal_items(1, 20, 5).front());
  items[1].schema = {{"type", "nothing that is known"}};
  GrammarSupply grammars(made_up_vocabulary(kFakeVocab), SchemaOptions::Spaces::kCompact);
  for (const uint32_t concurrency : {0u, 2u}) {
    EngineLoadOptions options{.concurrency = concurrency};
    options.sampling.temperature = 1;
    options.grammars = &grammars;
    const auto outcomes = bed.run(items, options);
    CHECK(outcomes[1].failure == Failure::kRefused);
    CHECK_FALSE(outcomes[3].failure);
    CHECK(outcomes[3].output_tokens == 5);
    for (const size_t i : {size_t{0}, size_t{2}}) {
      INFO(outcomes[i].answer.content);
      REQUIRE_FALSE(outcomes[i].failure);
      if (outcomes[i].finish_reason == "length") continue;
      CHECK(outcomes[i].finish_reason == "grammar_end");
      CHECK(fits_roughly(boost::json::parse(outcomes[i].answer.content), items[i].schema));
    }
    CHECK(std::ranges::count(outcomes, "grammar_end", &Outcome::finish_reason) >= 1);
  }
}
