// llmrt-bench model: prompt and decode speed of a model by number of rows, on each device in turn.
#include <fmt/format.h>

#include <algorithm>

#include "backends/backends.h"
#include "tools/llmrt_bench/commands/commands.h"
#include "tools/llmrt_bench/model/model_table.h"
#include "tools/llmrt_bench/ops/device_limits.h"
#include "tools/llmrt_bench/record/time_left.h"
#include "tools/number_range.h"

namespace llmrt::bench {
namespace {

struct Options {
  std::string model = "synthetic:llama-3.1-8b:q4_0", draft_model;
  std::vector<std::string> devices{"auto"};
  std::vector<uint32_t> prompts{512, 2048}, rows{1, 8, 32, 128, 256};
  uint32_t depth = 512, output = 128, repeats = 3, draft_tokens = kDraftTokensDefault;
  std::string kv_dtype = "f16", format = "md", drafts = kBatchDraftsNames[0], json_path;
  double read_gb_s = 0, price_hour_usd = 0, f16_copies_share = EngineConfig().f16_copies_share;
  bool batch_invariant = false, limits = false;
};

struct Candidate {
  std::unique_ptr<Engine> engine;
  Caps caps;
  Ceilings ceilings;
  bool is_lost = false;
};

EngineConfig config_of(const Options& options, KvDType kv_dtype) {
  EngineConfig config;
  config.kv_dtype = kv_dtype;
  config.batch_invariant = options.batch_invariant;
  config.f16_copies_share = options.f16_copies_share;
  config.prefix_cache = PrefixCacheKind::kOff;                   // every run computes all of its tokens
  config.ngram_drafts = options.drafts != kBatchDraftsNames[0];  // their lists are compiled before the runs
  config.model_drafts = !options.draft_model.empty();
  config.draft_tokens = options.draft_tokens;
  for (const uint32_t rows : options.rows) config.sequences_max = std::max(config.sequences_max, rows);
  config.context_max = options.depth + options.output + 1;
  for (const uint32_t prompt : options.prompts) config.context_max = std::max(config.context_max, prompt + 2);
  const uint64_t tokens_wanted = uint64_t{config.sequences_max} * (options.depth + options.output + 16);
  config.kv_tokens = std::max<uint64_t>(tokens_wanted + tokens_wanted / 32, 2 * config.context_max);
  // Prompts first: all rows must be decoding at once for as long as possible.
  config.chunk_tokens = config.step_tokens_max;
  return config;
}

std::vector<ModelTest> tests_of(const Options& options) {
  std::vector<ModelTest> tests;
  for (const uint32_t prompt : options.prompts) tests.push_back({.n_prompt = prompt});
  const auto drafts =
      static_cast<BatchDrafts>(std::ranges::find(kBatchDraftsNames, options.drafts) - kBatchDraftsNames);
  for (const uint32_t rows : options.rows)
    tests.push_back({.n_gen = options.output,
                     .n_depth = options.depth,
                     .n_rows = rows,
                     .drafts = drafts,
                     .draft_tokens = options.draft_tokens});
  return tests;
}

boost::json::object work_of(const Model& model, const Options& options, const EngineConfig& config) {
  boost::json::object work = model_work(model, config.kv_dtype);
  work["prompts"] = boost::json::value_from(options.prompts);
  work["rows"] = boost::json::value_from(options.rows);
  work["depth"] = options.depth;
  work["output"] = options.output;
  work["f16_copies_share"] = options.f16_copies_share;
  return work;
}

// Limits come first, while the device's memory is free.
Result<Candidate> open(const Options& options, const std::string& name, const std::shared_ptr<const Model>& model,
                       const std::shared_ptr<const Model>& draft, const EngineConfig& config, const Clock& clock,
                       Record* record) {
  Candidate candidate;
  candidate.ceilings.read_gb_s = options.read_gb_s;
  std::optional<DeviceLimits> limits;
  if (options.limits) {
    Result<std::unique_ptr<Backend>> backend = open_device(name);
    if (!backend) return backend.error();
    fmt::print(stderr, "{}: measuring limits\n", (*backend)->caps().device_id);
    Result<DeviceLimits> measured = measure_limits(std::move(*backend));
    if (!measured) return measured.error();
    limits = std::move(*measured);
    candidate.ceilings = {limits->read.best, limits->matrix_tflop_s()};
  }
  Result<EngineUnderTest> under = open_engine(name, model, config, &clock, draft);
  if (!under) return under.error();
  fmt::print(stderr, "{}: {} ({}), loaded in {:.2f} s\n", under->device_id, under->device_name, under->tier,
             under->load_s);
  candidate.engine = std::move(under->engine);
  candidate.caps = candidate.engine->backend().caps();
  record->add_device(candidate.caps);
  if (limits) {
    const auto add = [&](const std::string& test, const Limit& limit) {
      record->add({"limit " + test, candidate.caps.device_id, {{"rate", limit.unit, limit.best, limit.samples}}});
    };
    add("read", limits->read);
    for (const Limit& limit : limits->matrix) add("matrix " + limit.name, limit);
  }
  return candidate;
}

// Of one test. Devices alternate within each repeat, so that drift of the clocks hits them alike; the first repeat is
// the warm-up.
std::vector<std::pair<ModelSamples, Status>> measure(const Options& options, const ModelTest& test, const Clock& clock,
                                                     std::vector<Candidate>& candidates, TimeLeft* time_left) {
  std::vector<std::pair<ModelSamples, Status>> measured(candidates.size());
  for (uint32_t repeat = 0; repeat <= options.repeats; ++repeat) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      Candidate& candidate = candidates[i];
      auto& [samples, status] = measured[i];
      if (!candidate.is_lost && status) {
        time_left->begin(fmt::format("{} {} {}", candidate.caps.device_id, test.name(),
                                     repeat ? fmt::format("run {} of {}", repeat, options.repeats) : "warm-up"));
        ModelSamples warm_up;
        status = run_once(candidate.engine.get(), clock, test, repeat, repeat ? &samples : &warm_up);
        candidate.is_lost = !status && status.error().code == ErrorCode::kDeviceLost;
      }
      time_left->done(test.weight());
    }
  }
  return measured;
}

// False when a test failed on a device: what it was to be is recorded as missing, and the others go on.
bool measure_all(const Options& options, const Model& model, const EngineConfig& config, const Clock& clock,
                 std::vector<Candidate>& candidates, Record* record) {
  const std::vector<ModelTest> tests = tests_of(options);
  double weight = 0;
  for (const ModelTest& test : tests)
    weight += test.weight() * (options.repeats + 1) * static_cast<double>(candidates.size());
  TimeLeft time_left(weight);
  const auto format = static_cast<TableFormat>(std::ranges::find(kTableFormats, options.format) - kTableFormats);
  ModelTable table(format, model, config, options.price_hour_usd > 0);
  bool is_whole = true;
  for (const ModelTest& test : tests) {
    const auto measured = measure(options, test, clock, candidates, &time_left);
    time_left.clear();
    for (size_t i = 0; i < candidates.size(); ++i) {
      const auto& [samples, status] = measured[i];
      const std::string& device = candidates[i].caps.device_id;
      if (!status || samples.tok_s.empty()) {
        const std::string reason = status ? "the device was lost before" : status.error().message;
        fmt::print(stderr, "{} {} FAILED: {}\n", device, test.name(), reason);
        record->miss(test.name(), device, reason);
        is_whole = false;
        continue;
      }
      ModelRow row = make_row(model, config, test, samples);
      row.caps = candidates[i].caps;
      row.ceilings = candidates[i].ceilings;
      row.price_hour_usd = options.price_hour_usd;
      table.print(row);
      record->add(row.to_record());
    }
  }
  return is_whole;
}

Status run(const Options& options) {
  Result<std::shared_ptr<const Model>> model = load_model(options.model);
  if (!model) return model.error();
  const Result<KvDType> kv = kv_dtype_of(options.kv_dtype);
  if (!kv) return kv.error();
  const EngineConfig config = config_of(options, *kv);
  if (config.context_max > (*model)->config.context_max)
    return make_error(ErrorCode::kInvalidArgument,
                      "--prompts, --depth, --output: expected at most the {} tokens of {}'s context, found {}",
                      (*model)->config.context_max, (*model)->path, config.context_max);
  Result<Record> record = Record::create("model", work_of(**model, options, config),
                                         {{"model", (*model)->path},
                                          {"repeats", options.repeats},
                                          {"batch_invariant", options.batch_invariant},
                                          {"draft_model", options.draft_model},
                                          {"draft_tokens", options.draft_tokens},
                                          {"drafts", options.drafts},
                                          {"step_tokens", config.step_tokens_max},
                                          {"price_hour_usd", options.price_hour_usd}},
                                         options.json_path);
  if (!record) return record.error();
  std::shared_ptr<const Model> draft;
  if (!options.draft_model.empty()) {
    Result<std::shared_ptr<const Model>> loaded = load_draft_model(options.draft_model, **model);
    if (!loaded) return loaded.error();
    draft = *std::move(loaded);
  }
  const SteadyClock clock;
  std::vector<Candidate> candidates;
  for (const std::string& name : options.devices) {
    Result<Candidate> candidate = open(options, name, *model, draft, config, clock, &*record);
    if (!candidate) return candidate.error();
    candidates.push_back(*std::move(candidate));
  }
  const bool is_whole = measure_all(options, **model, config, clock, candidates, &*record);
  for (const Candidate& candidate : candidates)
    if (const DraftStats drafts = candidate.engine->stats().drafts; drafts.num_proposed > 0)
      fmt::print(stderr, "{}: {} of {} drafts right, {:.2f} s of drafting, {:.2f} s of reading prompts for it\n",
                 candidate.caps.device_id, drafts.num_accepted, drafts.num_proposed, drafts.model_ms * 1e-3,
                 drafts.model_read_ms * 1e-3);
  if (Status status = record->finish(); !status) return status.error();
  if (!is_whole) return make_error(ErrorCode::kInternal, "not all tests ran; see FAILED above");
  return {};
}

}  // namespace

void add_model_command(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "model",
      "Prompt and decode speed of a model, by rows, on each device. ppN: a prompt of N tokens; tgN@D xR: R rows decode "
      "N tokens each behind D of prompt, the rate while all of them decode");
  const auto list = [&](const char* name, std::vector<uint32_t>& values, uint32_t most, const char* help) {
    command->add_option(name, values, help)->delimiter(',')->check(CLI::Range(1u, most))->capture_default_str();
  };
  const auto number = [&](const char* name, uint32_t& value, uint32_t least, uint32_t most, const char* help) {
    command->add_option(name, value, help)->check(number_range(least, most))->capture_default_str();
  };
  command->add_option("-m,--model", options->model, "GGUF file or synthetic:<shape>:<encoding>")->capture_default_str();
  command->add_option("--draft-model", options->draft_model,
                      "A smaller model that drafts for it, or mtp: its own layer that drafts; of "
                      "synthetic:SHAPE@4+:ENCODING, synthetic:SHAPE@4:ENCODING foresees every token");
  command
      ->add_option(
          "--drafts", options->drafts,
          "Of rows that write one token again and again: none; right; or an adversary's, who is right until its "
          "drafts are trusted. For rates against none")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kBatchDraftsNames), std::end(kBatchDraftsNames))))
      ->capture_default_str();
  number("--draft-tokens", options->draft_tokens, 1, kDraftTokensMax, "Drafts of a row in a step, at most");
  command->add_option("-d,--device", options->devices, "Devices to compare (repeat)")->capture_default_str();
  list("-p,--prompts", options->prompts, 1u << 20, "Prompt lengths");
  list("-r,--rows", options->rows, 65536, "Numbers of decoding rows");
  number("--depth", options->depth, 1, 1u << 20, "Prompt tokens of each decoding row");
  number("-n,--output", options->output, 2, 1u << 20, "Tokens that each row generates");
  number("--repeats", options->repeats, 1, 10000, "Counted runs, after one warm-up");
  command->add_option("--kv", options->kv_dtype, fmt::format("KV cache dtype: {}", kKvDTypeNames))
      ->capture_default_str();
  command->add_flag("--batch-invariant", options->batch_invariant,
                    "Kernels whose numbers do not depend on the batch: what they cost");
  command->add_option("--f16-copies", options->f16_copies_share, "As of llmrt serve: 0 = none")
      ->check(number_range(0.0, 0.9))
      ->capture_default_str();
  auto* limits = command->add_flag(
      "--limits", options->limits,
      "First measure what each device reaches: prompts as a share of the matrix rate, decode of the read bandwidth");
  command->add_option("--read-gb-s", options->read_gb_s, "Read bandwidth measured before, for shares of decode")
      ->check(number_range(0.001, 1e6))
      ->excludes(limits);
  command->add_option("--price-per-hour", options->price_hour_usd, "Of the machine, in USD: adds USD a million tokens")
      ->check(number_range(0.0, 1e6));
  command->add_option("--format", options->format, "Of standard output: md, csv or json, fields as llama-bench's")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kTableFormats), std::end(kTableFormats))))
      ->capture_default_str();
  command->add_option("--json", options->json_path, "Also write the record of the run to this file");
  on_parsed(command, exit_code, [options] { return run(*options); });
}

}  // namespace llmrt::bench
