// llmrt-bench capacity: the operating envelope of a model on a device, cell by cell.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "backends/backends.h"
#include "tools/llmrt_bench/adapters/random_adapter.h"
#include "tools/llmrt_bench/commands/commands.h"
#include "tools/llmrt_bench/load/envelope.h"
#include "tools/llmrt_bench/load/load_progress.h"
#include "tools/llmrt_bench/model/engine_run.h"
#include "tools/llmrt_bench/record/record.h"
#include "tools/llmrt_bench/serving/vocabulary.h"
#include "tools/number_range.h"

namespace llmrt::bench {
namespace {

struct Options {
  std::string model = "synthetic:llama-3.1-8b:q4_0", device = "auto", kv_dtype = "f16";
  EngineConfig engine;
  std::vector<std::string> prompts{"128", "2048"}, classes{"interactive"}, samplings{"greedy"}, adapters{"none"},
      patterns{"steady"};
  std::vector<uint32_t> outputs{64, 512};
  uint32_t adapter_rank = 16, adapter_slots = 8;
  CellOptions cell;
  std::string vocabulary_path, out_path, json_path;
};

// "max": what the output leaves of the context.
Result<uint32_t> prompt_tokens_of(const std::string& text, uint32_t output_tokens, uint32_t context_max) {
  if (text == "max") return context_max > output_tokens ? context_max - output_tokens : 1;
  uint32_t tokens = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), tokens);
  if (error != std::errc() || end != text.data() + text.size() || tokens == 0)
    return make_error(ErrorCode::kInvalidArgument, "--prompts: expected numbers of tokens or max, found {}", text);
  return tokens;
}

Result<std::vector<Cell>> cells_of(const Options& options, uint32_t context_max) {
  std::vector<Cell> cells;
  std::vector<AdapterMix> mixes;
  for (const std::string& text : options.adapters) {
    Result<AdapterMix> mix = parse_adapter_mix("--adapters", text);
    if (!mix) return mix.error();
    mixes.push_back(*mix);
  }
  for (const std::string& prompt : options.prompts)
    for (const uint32_t output : options.outputs) {
      Result<uint32_t> prompt_tokens = prompt_tokens_of(prompt, output, context_max);
      if (!prompt_tokens) return prompt_tokens.error();
      for (const std::string& name : options.classes)
        for (const std::string& sampling : options.samplings)
          for (const AdapterMix& mix : mixes)
            for (const std::string& pattern : options.patterns)
              cells.push_back({*prompt_tokens, output, *parse_request_class(name), sampling, mix, pattern});
    }
  return cells;
}

void print_head() {
  fmt::print("| {:<52} | {:<12} | {:>10} | {:>9} | {:>9} | {:<24} | {:>10} |\n", "cell", "objectives", "requests/s",
             "tok/s", "TTFT p95", "beyond", "recovery s");
  fmt::print("|{:-<54}|{:-<14}|{:->11}:|{:->10}:|{:->10}:|{:-<26}|{:->11}:|\n", "", "", "", "", "", "", "");
}

void print_row(const Cell& cell, const CellResult& result) {
  if (result.verdict != CellVerdict::kMet) {
    fmt::print("| {:<52} | {:<12} | {}\n", cell.name(), cell_verdict_name(result.verdict), result.note);
  } else {
    const Summary& summary = result.highest.summary;
    fmt::print("| {:<52} | {:<12} | {:>10.3g} | {:>9.1f} | {:>9.1f} | {:<24} | {:>10} | {}\n", cell.name(), "met",
               result.highest.per_s, summary.per_s(static_cast<double>(summary.output_tokens)), summary.ttft_ms.p95,
               result.beyond_what, fmt::format("{}{:.1f}", result.is_recovered ? "" : "> ", result.recovery_s),
               result.note);
  }
  std::fflush(stdout);
}

RecordRow record_row(const Cell& cell, const std::string& device, const CellResult& result, boost::json::object row) {
  const Summary& summary = result.highest.summary;
  return {cell.name(),
          device,
          {{"highest_rate", "requests/s", result.highest.per_s},
           {"output_tok_s", "tok/s", summary.per_s(static_cast<double>(summary.output_tokens))},
           {"ttft_p50", "ms", summary.ttft_ms.p50, summary.ttft_ms.samples},
           {"ttft_p95", "ms", summary.ttft_ms.p95},
           {"tpot_p50", "ms", summary.tpot_ms.p50, summary.tpot_ms.samples},
           {"tpot_p95", "ms", summary.tpot_ms.p95},
           {"recovery", "s", result.recovery_s}},
          std::move(row)};
}

Result<Record> make_record(const Options& options, const Model& model, KvDType kv_dtype) {
  const CellOptions& cell = options.cell;
  boost::json::object work = model_work(model, kv_dtype);
  work["slo_ttft_ms"] = *cell.slo.ttft_ms;
  work["slo_tpot_ms"] = *cell.slo.tpot_ms;
  work["slo_share"] = cell.slo_share;
  work["trial_s"] = cell.trial_s;
  work["requests_min"] = cell.requests_min;
  work["seed"] = cell.seed;
  return Record::create("capacity", std::move(work),
                        {{"model", model.path},
                         {"sequences_max", options.engine.sequences_max},
                         {"context_max", options.engine.context_max},
                         {"kv_tokens", options.engine.kv_tokens},
                         {"queue_tokens_max", options.engine.queue_tokens_max},
                         {"ttft_target_ms", options.engine.ttft_target_ms},
                         {"tolerance", cell.tolerance},
                         {"beyond", cell.beyond},
                         {"burst_s", cell.burst_s},
                         {"adapter_rank", options.adapter_rank},
                         {"adapter_slots", options.adapter_slots}},
                        options.json_path);
}

Status run(const Options& options) {
  Result<std::shared_ptr<const Model>> model = load_model(options.model);
  if (!model) return model.error();
  const Result<KvDType> kv = kv_dtype_of(options.kv_dtype);
  if (!kv) return kv.error();
  EngineConfig config = options.engine;
  config.kv_dtype = *kv;
  const uint32_t context_max = config.context_max > 0 ? config.context_max : (*model)->config.context_max;
  Result<std::vector<Cell>> cells = cells_of(options, context_max);
  if (!cells) return cells.error();
  Result<Record> record = make_record(options, **model, *kv);
  if (!record) return record.error();
  uint32_t num_adapters = 0;
  for (const Cell& cell : *cells) num_adapters = std::max(num_adapters, cell.adapters.count);
  config.adapters = {.slots = std::min(num_adapters, options.adapter_slots),
                     .rank_max = options.adapter_rank,
                     .planned_rank = options.adapter_rank};
  const SteadyClock clock;
  Result<EngineUnderTest> under = open_engine(options.device, *model, config, &clock);
  if (!under) return under.error();
  record->add_device(under->engine->backend().caps());
  for (Result<bool> more = true; *more;) {  // as an idle server does
    more = under->engine->prepare_next();
    if (!more) return more.error();
  }
  const TimeNs begin_ns = clock.now_ns();
  size_t num_measured = 0, num_done = 0;
  const auto on_trial = [&](const std::string& what, size_t num_requests) -> OnOutcome {
    const double elapsed_s = ms_between(begin_ns, clock.now_ns()) * 1e-3;
    std::string left;
    if (num_measured > 0)
      left = fmt::format(", {:.0f} s left in all",
                         elapsed_s / static_cast<double>(num_measured) * static_cast<double>(cells->size() - num_done));
    const auto progress = std::make_shared<LoadProgress>(
        fmt::format("cell {} of {}{}: {}", num_done + 1, cells->size(), left, what), num_requests, &clock);
    return [progress](const Outcome* outcome) { progress->update(outcome); };
  };
  std::optional<GrammarSupply> grammars;
  if (std::ranges::find(*cells, "grammar", &Cell::sampling) != cells->end()) {
    Result<std::shared_ptr<const TokenVocabulary>> vocabulary = grammar_vocabulary(**model, options.vocabulary_path);
    if (!vocabulary) return vocabulary.error();
    grammars.emplace(*std::move(vocabulary));
  }
  const std::vector<ReadyAdapter> adapters = make_ready_adapters(
      **model, num_adapters, options.adapter_rank, under->engine->backend().caps().activation_dtype, options.cell.seed);
  const CellBench bench{under->engine.get(),
                        clock,
                        [&](TimeNs then) { clock.sleep_until(then); },
                        on_trial,
                        grammars ? &*grammars : nullptr,
                        adapters};
  fmt::print("{}, {} on {}: TTFT {:g} ms, TPOT {:g} ms for {:g} % of requests\n\n", (*model)->path, options.kv_dtype,
             under->device_name, *options.cell.slo.ttft_ms, *options.cell.slo.tpot_ms, 100 * options.cell.slo_share);
  print_head();
  std::vector<boost::json::object> rows;
  for (const Cell& cell : *cells) {
    Result<CellResult> result = measure_cell(bench, cell, options.cell);
    if (!result) return result.error();
    ++num_done;
    num_measured += result->num_trials > 0;
    print_row(cell, *result);
    rows.push_back(envelope_row((*model)->path, under->device_id, *kv, cell, options.cell, *result));
    if (result->verdict == CellVerdict::kMet)
      record->add(record_row(cell, under->device_id, *result, rows.back()));
    else
      record->miss(cell.name(), under->device_id,
                   fmt::format("{}: {}", cell_verdict_name(result->verdict), result->note));
    if (options.out_path.empty()) continue;
    if (Status status = write_envelope(options.out_path, rows); !status) return status;
  }
  return record->finish();
}

void add_options(CLI::App* command, Options* options) {
  const auto number = [&](const char* name, auto& value, auto least, auto most, const char* help) {
    command->add_option(name, value, help)->check(number_range(least, most))->capture_default_str();
  };
  const auto list = [&](const char* name, auto& values, const char* help) {
    return command->add_option(name, values, help)->delimiter(',')->capture_default_str();
  };
  CellOptions& cell = options->cell;
  EngineConfig& engine = options->engine;
  cell.slo = {engine.slo.ttft_ms, engine.slo.tpot_ms};
  command->add_option("-m,--model", options->model, "GGUF file or synthetic:<shape>:<encoding>")->capture_default_str();
  command->add_option("-d,--device", options->device, "Of the engine")->capture_default_str();
  list("--prompts", options->prompts, "Tokens, or max: what the output leaves of the context");
  list("--outputs", options->outputs, "Tokens")->check(CLI::Range(1u, 1u << 20));
  std::vector<std::string> classes;
  for (size_t i = 0; i < kNumRequestClasses; ++i) classes.push_back(request_class_name(static_cast<RequestClass>(i)));
  list("--classes", options->classes, "")->check(CLI::IsMember(classes));
  list("--samplings", options->samplings,
       "grammar: temperature 1, each request with a JSON schema of its own; its answer may end before --outputs")
      ->check(CLI::IsMember({"greedy", "top-p", "grammar"}));
  command->add_option("--vocabulary", options->vocabulary_path,
                      "For grammar: GGUF file with the words that grammars are made over, weights or none; default: "
                      "the model's, made up for a synthetic model");
  list("--adapters", options->adapters,
       "none, or COUNT:EXPONENT: each request names one of COUNT random adapters, the i-th in proportion to "
       "1 / i^EXPONENT (1)");
  number("--adapter-rank", options->adapter_rank, 1u, kAdapterRankMax, "Of the adapters");
  number("--adapter-slots", options->adapter_slots, 1u, kAdapterSlotsMax, "Adapters on the device at once");
  list("--patterns", options->patterns, "Poisson, bursts of 8, Pareto gaps")
      ->check(CLI::IsMember({"steady", "burst", "heavy-tail"}));
  number("--slo-ttft-ms", *cell.slo.ttft_ms, 1e-3, 1e9, "To the first token, at most");
  number("--slo-tpot-ms", *cell.slo.tpot_ms, 1e-3, 1e9, "Between tokens on average, at most");
  number("--slo-share", cell.slo_share, 0.01, 1.0, "Of requests that meet both, at least");
  number("--trial-s", cell.trial_s, 0.01, 1e6,
         "Of arrivals at one rate, which is for how long it holds; at least 3 lone requests and 5 TTFT objectives");
  number("--requests-min", cell.requests_min, 1u, 1u << 20, "Of a trial");
  number("--tolerance", cell.tolerance, 0.001, 10.0, "Of the rate that is found");
  number("--trials-max", cell.trials_max, 1u, 1000u, "In search of a rate");
  number("--beyond", cell.beyond, 1.01, 100.0, "Times the rate that is found: what happens then");
  number("--burst-s", cell.burst_s, 0.01, 1e6, "A burst is what comes in so long at the rate that is found");
  number("--seed", cell.seed, uint64_t{0}, ~uint64_t{0}, "Of gaps and prompts");
  command->add_option("--kv", options->kv_dtype, fmt::format("KV cache dtype: {}", kKvDTypeNames))
      ->capture_default_str();
  number("--context", engine.context_max, 0u, 1u << 24, "Tokens of a sequence; 0 = the model's");
  number("--sequences", engine.sequences_max, 1u, 65536u, "Running at once");
  number("--kv-tokens", engine.kv_tokens, uint64_t{0}, uint64_t{1} << 40,
         "Size of the KV pool; 0 = what memory allows");
  number("--queue-tokens", engine.queue_tokens_max, uint64_t{1}, uint64_t{1} << 40,
         "Of prompts that wait; what comes beyond is refused");
  number("--ttft-target-ms", engine.ttft_target_ms, 0.0, 1e9, "Who would wait longer is refused; 0 = any wait");
  command->add_option("--out", options->out_path, "The operating envelope: .csv, else JSON lines");
  command->add_option("--json", options->json_path, "Also write a record of the run to this file");
}

}  // namespace

void add_capacity_command(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "capacity",
      "The operating envelope: of each kind of request the highest rate that meets the objectives, found by "
      "bisection, what happens beyond it, and how long a burst is felt");
  const auto options = std::make_shared<Options>();
  add_options(command, options.get());
  on_parsed(command, exit_code, [options] { return run(*options); });
}

}  // namespace llmrt::bench
