// The operating envelope finds what the engine can do. Method: an engine whose steps take a time that is told
// beforehand, so its rate under full load can be measured beside the rate that the search finds.
#include "tools/llmrt_bench/load/cell.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/bench/timed_backend.h"
#include "tools/llmrt_bench/load/envelope.h"
#include "tools/llmrt_bench/serving/loaded_device.h"
#include "tools/llmrt_bench/serving/vocabulary.h"

using namespace llmrt;
using namespace llmrt::bench;
using namespace llmrt::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

struct CellBed {
  explicit CellBed(uint64_t queue_tokens_max = 1 << 20) {
    auto backend = std::make_unique<TimedBackend>(&clock, FakeBackendConfig(), &num_loads);
    timed = backend.get();
    auto loaded = LoadedDevice::load(std::move(backend), model, &clock);
    REQUIRE(loaded.ok());
    device = std::move(*loaded);
    EngineConfig config;
    config.context_max = 128;
    config.sequences_max = 4;
    config.queue_tokens_max = queue_tokens_max;
    auto made = device.make_engine(config);
    REQUIRE(made.ok());
    engine = std::move(*made);
    options.slo = {.ttft_ms = 5, .tpot_ms = 2};
    options.trial_s = 0.3;
    options.burst_s = 0.02;
  }
  CellResult measure(const Cell& cell, GrammarSupply* grammars = nullptr, std::span<const ReadyAdapter> adapters = {}) {
    const CellBench bench{engine.get(),
                          clock,
                          [this](TimeNs then) { clock.sleep_until(then); },
                          [](const std::string&, size_t) { return [](const Outcome*) {}; },
                          grammars,
                          adapters};
    auto result = measure_cell(bench, cell, options);
    INFO((result.ok() ? "" : result.error().message));
    REQUIRE(result.ok());
    return *result;
  }
  // Requests a second when somebody always waits.
  double served_per_s(const Cell& cell) {
    Draws draws(99);
    std::vector<EngineItem> items;
    for (int i = 0; i < 200; ++i)
      items.push_back({{}, draws.tokens(cell.prompt_tokens, kFakeVocab), cell.output_tokens});
    EngineLoadOptions load;
    load.concurrency = 16;
    auto outcomes = run_on_engine(
        engine.get(), clock, [this](TimeNs then) { clock.sleep_until(then); }, items, load, [](const Outcome*) {});
    REQUIRE(outcomes.ok());
    const Summary summary = summarize(*outcomes, {});
    return summary.per_s(static_cast<double>(summary.num_completed));
  }

  SimClock clock;
  int num_loads = 0;
  const TimedBackend* timed = nullptr;
  std::shared_ptr<const Model> model = make_fake_model();
  LoadedDevice device;
  std::unique_ptr<Engine> engine;
  CellOptions options;
};

Cell cell_of(uint32_t prompt_tokens, uint32_t output_tokens, const std::string& pattern = "steady") {
  Cell cell;
  cell.prompt_tokens = prompt_tokens;
  cell.output_tokens = output_tokens;
  cell.pattern = pattern;
  return cell;
}

}  // namespace

TEST_CASE("a cell with grammars has a schema for each request") {
  CellBed bed;
  bed.options.trial_s = 0.02;
  bed.options.requests_min = 4;
  bed.options.trials_max = 2;
  bed.options.burst_s = 0.001;
  bed.options.slo = {.ttft_ms = 5, .tpot_ms = 5};
  Cell cell = cell_of(8, 8);
  cell.sampling = "grammar";
  GrammarSupply grammars(made_up_vocabulary(kFakeVocab));
  const CellResult result = bed.measure(cell, &grammars);
  INFO(result.note);
  CHECK(result.verdict == CellVerdict::kMet);
  CHECK(result.alone.summary.num_completed == 3);
  CHECK(result.alone.summary.finish_reasons.at("length") == 3);  // 8 characters are no whole record
  const GrammarFigures figures = grammars.figures();
  CHECK(figures.num_compiled >= 3 + 2 * 4);
  CHECK(figures.num_cached == 0);
  CHECK(figures.num_masks_made > 0);
}

TEST_CASE("a cell with adapters asks for all of them, and says so") {
  CellBed bed;
  bed.options.trial_s = 0.05;
  bed.options.trials_max = 2;
  Cell cell = cell_of(8, 8);
  cell.adapters = {3, 0.5};
  CHECK(cell.name() == "8 + 8 tokens, interactive, greedy, adapters 3:0.5, steady");
  CHECK(cell_of(8, 8).name() == "8 + 8 tokens, interactive, greedy, steady");
  const std::vector<ReadyAdapter> adapters = {{nullptr, 1, 8, {}}, {nullptr, 2, 8, {}}, {nullptr, 3, 8, {}}};
  const CellResult result = bed.measure(cell, nullptr, adapters);
  CHECK(result.verdict == CellVerdict::kMet);
  CHECK(bed.timed->adapted_prompts().size() == 3);
  const auto row = envelope_row("model", "fake:0", KvDType::kF16, cell, bed.options, result);
  CHECK(row.at("adapter") == "3:0.5");
}

TEST_CASE("the highest rate is just below what the engine serves, and beyond it requests queue") {
  CellBed bed;
  const Cell cell = cell_of(32, 16);
  const double served = bed.served_per_s(cell);
  const CellResult result = bed.measure(cell);
  INFO("served " << served << ", highest " << result.highest.per_s << ", beyond " << result.beyond_what);
  CHECK(result.verdict == CellVerdict::kMet);
  CHECK(result.highest.per_s > 0.7 * served);
  CHECK(result.highest.per_s < 1.1 * served);
  CHECK(result.missed_per_s <= result.highest.per_s * 1.1 * 1.0001);
  CHECK(result.highest.good_share() >= 0.95);
  CHECK(result.beyond.good_share() < 0.95);
  CHECK(result.beyond_what == "queues");
  CHECK(result.burst_requests == std::max(4u, static_cast<uint32_t>(std::ceil(0.02 * result.highest.per_s))));
  // 20 ms of work on top of a half-loaded engine: some 40 ms until it is done.
  CHECK(result.is_recovered);
  CHECK(result.recovery_s > 0.01);
  CHECK(result.recovery_s < 0.06);
}

TEST_CASE("arrivals in bursts and with a heavy tail allow no more than steady ones") {
  CellBed bed;
  bed.options.slo.ttft_ms = 3;
  bed.options.trial_s = 2;
  const double steady = bed.measure(cell_of(32, 16)).highest.per_s;
  CHECK(bed.measure(cell_of(32, 16, "burst")).highest.per_s < steady);
  CHECK(bed.measure(cell_of(32, 16, "heavy-tail")).highest.per_s <= steady);
}

TEST_CASE("a bounded queue rejects what comes beyond it") {
  CellBed bed(/*queue_tokens_max=*/64);
  const CellResult result = bed.measure(cell_of(32, 16));
  CHECK(result.verdict == CellVerdict::kMet);
  CHECK_THAT(result.beyond_what, ContainsSubstring("rejects"));
  CHECK(result.beyond.num_refused > 0);
}

TEST_CASE("what happens beyond a rate has a name, and holds is said of objectives that are met only") {
  CellOptions options;
  options.slo = {.ttft_ms = 100, .tpot_ms = 10};
  options.slo_share = 0.95;
  Trial trial;
  trial.summary.num_requests = 100;
  trial.summary.num_good = 95;
  trial.summary.ttft_ms.p95 = 99;
  trial.summary.tpot_ms.p95 = 10;
  CHECK(what_happens(trial, options) == "holds");
  trial.summary.num_good = 94;
  CHECK(what_happens(trial, options) == "misses");
  trial.summary.ttft_ms.p95 = 101;
  CHECK(what_happens(trial, options) == "delays");
  trial.waiting_max = 1;
  CHECK(what_happens(trial, options) == "queues");
  trial.summary.tpot_ms.p95 = 11;
  trial.num_preemptions = trial.num_refused = 1;
  CHECK(what_happens(trial, options) == "rejects+preempts+queues+degrades");
}

TEST_CASE("a cell that cannot run says why") {
  CellBed bed;
  const CellResult too_long = bed.measure(cell_of(120, 16));
  CHECK(too_long.verdict == CellVerdict::kDoesNotFit);
  CHECK_THAT(too_long.note, ContainsSubstring("the context has 128"));
  bed.options.slo.ttft_ms = 0.2;
  const CellResult missed = bed.measure(cell_of(32, 16));
  CHECK(missed.verdict == CellVerdict::kMissedAlone);
  CHECK(missed.alone.summary.ttft_ms.p50 > 0.2);
}

TEST_CASE("every row of an envelope has the same columns, as CSV and as JSON lines") {
  CellBed bed;
  std::vector<boost::json::object> rows;
  for (const Cell& cell : {cell_of(32, 16), cell_of(120, 16)})
    rows.push_back(envelope_row("a \"model\", quoted", "fake:0", KvDType::kF16, cell, bed.options, bed.measure(cell)));
  REQUIRE(rows[0].size() == rows[1].size());
  auto other = rows[1].begin();
  for (const auto& entry : rows[0]) CHECK(entry.key() == (other++)->key());
  CHECK(rows[0].at("highest_rate_per_s").as_double() > 0);
  CHECK(rows[1].at("highest_rate_per_s").is_null());
  const std::string csv = envelope_csv(rows);
  CHECK_THAT(csv,
             ContainsSubstring("model,device,kv_dtype,prompt_tokens,output_tokens,class,sampling,adapter,pattern,"));
  CHECK_THAT(csv, ContainsSubstring(
                      "\"a \"\"model\"\", "
                      "quoted\",\"fake:0\",\"f16\",120,16,\"interactive\",\"greedy\",\"none\",\"steady\",5,2,0.95,"));
  CHECK(std::ranges::count(csv, '\n') == 3);
  CHECK(std::ranges::count(envelope_lines(rows), '\n') == 2);
}

TEST_CASE("an answer of one token has no TPOT in an envelope, and JSON has no not-a-number") {
  CellBed bed;
  const Cell cell = cell_of(32, 1);
  const auto row = envelope_row("model", "fake:0", KvDType::kF16, cell, bed.options, bed.measure(cell));
  CHECK(row.at("verdict") == "met");
  for (const char* name : {"alone_tpot_ms", "highest_tpot_p50_ms", "highest_tpot_p95_ms", "beyond_tpot_p95_ms"})
    CHECK(row.at(name).is_null());
  CHECK(row.at("highest_ttft_p95_ms").as_double() > 0);
}
