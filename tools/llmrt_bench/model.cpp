// llmrt-bench model: prompt and decode speed of a model by number of rows, on each device in turn.
#include <fmt/format.h>

#include <boost/json.hpp>

#include <algorithm>
#include <fstream>

#include "core/model/model.h"
#include "tools/llmrt_bench/commands.h"
#include "tools/llmrt_bench/engine_run.h"

namespace llmrt::bench {
namespace {

struct Options {
  std::string model = "synthetic:llama-3.1-8b:q4_0";
  std::vector<std::string> devices{"auto"};
  std::vector<uint32_t> prompts{512, 2048}, rows{1, 8, 32, 128, 256};
  uint32_t depth = 512, output = 128, repeats = 3;
  std::string kv_dtype = "f16", json_path;
  double read_gb_s = 0;
  bool batch_invariant = false;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// Bytes that one decode step must read at least: every matrix but the input embedding, and the keys and values.
double step_bytes(const Model& model, const EngineConfig& config, uint32_t rows, double mean_context) {
  double bytes = 0;
  for (const WeightGroup& group : model.weights.groups)
    for (const RowSegment& s : group.segments)
      bytes += static_cast<double>(s.num_rows) * static_cast<double>(model.weights.tensors[s.tensor].bytes_row());
  const ModelConfig& c = model.config;
  const double kv_token = 2.0 * c.num_layers * c.num_kv_heads * c.head_dim * kv_element_bytes(config.kv_dtype);
  return bytes + kv_token * rows * mean_context;
}

struct Row {
  std::string device, test;
  double tok_s, min, max, step_ms, idle, gb_s;
};

void print_row(const Row& row, double read_gb_s) {
  fmt::print("| {:<10} | {:<14} | {:>10.1f} | {:>9.1f} - {:<9.1f} | {:>9.3f} | {:>6.1f} | {:>7.0f}{} |\n", row.device,
             row.test, row.tok_s, row.min, row.max, row.step_ms, 100 * row.idle, row.gb_s,
             read_gb_s > 0 ? fmt::format(" ({:.1f} %)", 100 * row.gb_s / read_gb_s) : "");
  std::fflush(stdout);
}

Result<Row> measure_prompt(EngineUnderTest* under, const Clock& clock, const Options& options, uint32_t tokens) {
  std::vector<double> rates;
  for (uint32_t i = 0; i <= options.repeats; ++i) {  // the first is the warm-up
    Result<BatchResult> run = run_batch(under->engine.get(), clock, 1, tokens, 1, i);
    if (!run) return run.error();
    if (i) rates.push_back(tokens / run->prefill_s);
  }
  const auto [min, max] = std::minmax_element(rates.begin(), rates.end());
  const double rate = median(rates);
  return Row{under->device_id, fmt::format("pp{}", tokens), rate, *min, *max, 1e3 * tokens / rate, 0, 0};
}

Result<Row> measure_decode(EngineUnderTest* under, const Clock& clock, const Options& options, uint32_t rows) {
  std::vector<double> rates, steps, idles;
  for (uint32_t i = 0; i <= options.repeats; ++i) {
    Result<BatchResult> run = run_batch(under->engine.get(), clock, rows, options.depth, options.output, i);
    if (!run) return run.error();
    if (run->decode_steps == 0)
      return make_error(ErrorCode::kInvalidArgument,
                        "{} rows: expected more output tokens than the {} that the first row had before the last "
                        "prompt was done; ask for more with --output",
                        rows, options.output);
    if (i == 0 && options.repeats > 0) continue;
    rates.push_back(run->decode_tok_s);
    steps.push_back(run->step_ms);
    idles.push_back(run->idle_share);
  }
  const auto [min, max] = std::minmax_element(rates.begin(), rates.end());
  const double step_ms = median(steps);
  const double bytes =
      step_bytes(under->engine->model(), under->engine->config(), rows, options.depth + options.output / 2.0);
  return Row{under->device_id,
             fmt::format("tg{}@{} x{}", options.output, options.depth, rows),
             median(rates),
             *min,
             *max,
             step_ms,
             median(idles),
             bytes / step_ms * 1e-6};
}

Status run(const Options& options) {
  Result<std::shared_ptr<const Model>> model = load_model(options.model);
  if (!model) return model.error();
  const Result<KvDType> kv = kv_dtype_of(options.kv_dtype);
  if (!kv) return kv.error();
  EngineConfig config;
  config.kv_dtype = *kv;
  config.batch_invariant = options.batch_invariant;
  config.prefix_cache = PrefixCacheKind::kOff;  // every run computes all of its tokens
  config.sequences_max = std::max(1u, *std::max_element(options.rows.begin(), options.rows.end()));
  config.context_max = options.depth + options.output + 1;
  for (uint32_t prompt : options.prompts) config.context_max = std::max(config.context_max, prompt + 2);
  config.context_max = std::min(config.context_max, (*model)->config.context_max);
  const uint64_t tokens_wanted = uint64_t{config.sequences_max} * (options.depth + options.output + 16);
  config.kv_tokens = std::max<uint64_t>(tokens_wanted + tokens_wanted / 32, 2 * config.context_max);
  // Prompts first: all rows must be decoding at once for as long as possible.
  config.chunk_tokens = config.step_tokens_max;
  SteadyClock clock;
  std::vector<EngineUnderTest> engines;
  for (const std::string& device : options.devices) {
    Result<EngineUnderTest> under = open_engine(device, *model, config, &clock);
    if (!under) return under.error();
    fmt::print("{}: {} ({}), loaded in {:.2f} s\n", under->device_id, under->device_name, under->tier, under->load_s);
    engines.push_back(std::move(*under));
  }
  fmt::print("{}: {}, {:.2f} GB of weights, KV {}\n\n", (*model)->path, (*model)->config.architecture,
             static_cast<double>((*model)->weights.bytes()) * 1e-9, options.kv_dtype);
  fmt::print("| {:<10} | {:<14} | {:>10} | {:>21} | {:>9} | {:>6} | {:>7} |\n", "device", "test", "tok/s", "min - max",
             "ms", "idle %", "GB/s");
  fmt::print("|------------|----------------|-----------:|----------------------:|----------:|-------:|--------:|\n");
  boost::json::array rows;
  const auto keep = [&](const Row& row) {
    print_row(row, options.read_gb_s);
    rows.push_back({{"device", row.device},
                    {"test", row.test},
                    {"tok_s", row.tok_s},
                    {"tok_s_min", row.min},
                    {"tok_s_max", row.max},
                    {"ms", row.step_ms},
                    {"idle_share", row.idle},
                    {"gb_s", row.gb_s}});
  };
  // Devices alternate inside each test, so that drift of the clocks hits them alike.
  for (uint32_t prompt : options.prompts)
    for (EngineUnderTest& under : engines) {
      Result<Row> row = measure_prompt(&under, clock, options, prompt);
      if (!row) return row.error();
      keep(*row);
    }
  for (uint32_t count : options.rows)
    for (EngineUnderTest& under : engines) {
      Result<Row> row = measure_decode(&under, clock, options, count);
      if (!row) return row.error();
      keep(*row);
    }
  if (options.json_path.empty()) return {};
  std::ofstream(options.json_path) << boost::json::serialize(boost::json::object{
      {"command", "model"}, {"model", (*model)->path}, {"kv", options.kv_dtype}, {"rows", std::move(rows)}});
  return {};
}

}  // namespace

void add_model_command(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("model", "Prompt and decode speed of a model, by rows, on each device");
  command->add_option("-m,--model", options->model, "GGUF file or synthetic:<shape>:<encoding>")->capture_default_str();
  command->add_option("-d,--device", options->devices, "Devices to compare (repeat)")->capture_default_str();
  command->add_option("-p,--prompts", options->prompts, "Prompt lengths")->delimiter(',')->capture_default_str();
  command->add_option("-r,--rows", options->rows, "Numbers of decoding rows")->delimiter(',')->capture_default_str();
  command->add_option("--depth", options->depth, "Prompt tokens of each decoding row")->capture_default_str();
  command->add_option("-n,--output", options->output, "Tokens that each row generates")->capture_default_str();
  command->add_option("--repeats", options->repeats, "Counted runs, after one warm-up")->capture_default_str();
  command->add_option("--kv", options->kv_dtype, fmt::format("KV cache dtype: {}", kKvDTypeNames))
      ->capture_default_str();
  command->add_flag("--batch-invariant", options->batch_invariant,
                    "Kernels whose numbers do not depend on the batch: what they cost");
  command->add_option("--read-gb-s", options->read_gb_s, "Measured read bandwidth, for shares");
  command->add_option("--json", options->json_path, "Also write the figures to this file");
  on_parsed(command, exit_code, [options] { return run(*options); });
}

}  // namespace llmrt::bench
