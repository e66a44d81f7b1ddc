// llmrt-bench ops: every kernel of a model's steps on each device: its time, how far it is from what the device's
// limits allow, measured in the same run, and how far its results are from the float64 reference.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "backends/backends.h"
#include "core/model/model.h"
#include "tools/llmrt_bench/commands/commands.h"
#include "tools/llmrt_bench/ops/op_report.h"
#include "tools/llmrt_bench/record/time_left.h"

namespace llmrt::bench {
namespace {

constexpr uint32_t kRowsMax = 4096;

struct Options {
  std::string model = "synthetic:llama-3.1-8b:q4_0";
  std::vector<std::string> devices{"auto"};
  std::vector<uint32_t> prompts{512, 2048}, rows{1, 8, 32, 128, 256};
  std::vector<std::string> adapted;  // ROWS:ADAPTERS
  uint32_t adapter_rank = 16;
  uint32_t depth = 512, row_tokens = 1;
  BenchOptions bench;
  std::string kv_dtype = "f16", json_path;
  bool batch_invariant = false, no_check = false, absorbed_latents = false;
};

Result<StepKind> adapted_kind(const std::string& text, const Options& options, uint32_t block_tokens) {
  uint32_t rows = 0, adapters = 0;
  const char* end = text.data() + text.size();
  const auto read_rows = std::from_chars(text.data(), end, rows);
  const bool has_colon = read_rows.ec == std::errc() && read_rows.ptr != end && *read_rows.ptr == ':';
  if (has_colon) {
    const auto read = std::from_chars(read_rows.ptr + 1, end, adapters);
    if (read.ec != std::errc() || read.ptr != end) adapters = 0;
  }
  if (adapters < 1 || adapters > std::min(rows, kAdapterSlotsMax) || rows > kRowsMax)
    return make_error(ErrorCode::kInvalidArgument,
                      "--adapted: expected ROWS:ADAPTERS, up to {} rows and {} adapters, not more than rows, found {}",
                      kRowsMax, kAdapterSlotsMax, text);
  return StepKind{
      fmt::format("decode x{}, {} adapters", rows, adapters), {rows, 1, options.depth, 1, block_tokens}, adapters};
}

Result<std::vector<StepKind>> step_kinds(const Options& options, uint32_t block_tokens) {
  std::vector<StepKind> kinds;
  for (const uint32_t rows : options.rows)
    kinds.push_back({options.row_tokens == 1 ? fmt::format("decode x{}", rows)
                                             : fmt::format("decode x{} of {} tokens", rows, options.row_tokens),
                     {rows, options.row_tokens, options.depth, 1, block_tokens}});
  for (const std::string& text : options.adapted) {
    Result<StepKind> kind = adapted_kind(text, options, block_tokens);
    if (!kind) return kind.error();
    kinds.push_back(*std::move(kind));
  }
  for (const uint32_t prompt : options.prompts)
    kinds.push_back({fmt::format("prompt {}", prompt), {1, prompt, 0, 1, block_tokens}});
  return kinds;
}

EngineConfig engine_config(const Options& options, const std::vector<StepKind>& kinds, KvDType kv_dtype) {
  EngineConfig config;
  config.kv_dtype = kv_dtype;
  config.batch_invariant = options.batch_invariant;
  config.expands_latents = !options.absorbed_latents;
  config.sequences_max = config.step_tokens_max = config.context_max = 1;
  config.adapters = {.rank_max = options.adapter_rank, .planned_rank = options.adapter_rank};
  for (const StepKind& kind : kinds) {
    config.adapters.slots = std::max(config.adapters.slots, kind.num_adapters);
    const ProbeShape& shape = kind.shape;
    config.sequences_max = std::max(config.sequences_max, shape.num_sequences);
    config.step_tokens_max = std::max(config.step_tokens_max, shape.num_sequences * shape.num_tokens);
    config.context_max = std::max(config.context_max, shape.start + shape.num_tokens);
    config.kv_tokens = std::max(config.kv_tokens, uint64_t{probe_blocks(shape)} * shape.block_tokens);
  }
  config.sample_rows_max = config.sequences_max;
  return config;
}

// The limits first, of one device after the other: they need memory that steps take too.
Result<std::vector<BenchDevice>> prepare_devices(const Options& options, const std::shared_ptr<const Model>& model,
                                                 const EngineConfig& config, Record* record, TimeLeft* time_left) {
  std::vector<DeviceLimits> limits;
  for (const std::string& name : options.devices) {
    time_left->begin(fmt::format("{} limits", name));
    Result<std::unique_ptr<Backend>> backend = open_device(name);
    if (!backend) return backend.error();
    Result<DeviceLimits> measured = measure_limits(*std::move(backend));
    if (!measured) return measured.error();
    time_left->done(1);
    time_left->clear();
    record->add_device(measured->caps);
    record_limits(*measured, record);
    fmt::print("{}: {}; read {:.4g}, write {:.4g}, copy {:.4g} GB/s, matrices {:.4g} TFLOP/s\n",
               measured->caps.device_id, measured->caps.device_name, measured->read.best, measured->write.best,
               measured->copy.best, measured->matrix_tflop_s());
    limits.push_back(*std::move(measured));
  }
  std::vector<BenchDevice> devices;
  for (DeviceLimits& measured : limits) {
    const std::string name = measured.caps.device_id;
    time_left->begin(fmt::format("{} weights", name));
    Result<std::unique_ptr<Backend>> backend = open_device(name);
    if (!backend) return backend.error();
    Result<BenchDevice> device = prepare_device(std::move(measured), *std::move(backend), model, config);
    if (!device) return device.error();
    devices.push_back(*std::move(device));
    time_left->done(1);
  }
  return devices;
}

Status run(const Options& options) {
  Result<std::shared_ptr<const Model>> model = load_model(options.model);
  if (!model) return model.error();
  const Result<KvDType> kv_dtype = kv_dtype_of(options.kv_dtype);
  if (!kv_dtype) return kv_dtype.error();
  const Result<std::vector<StepKind>> step_kinds_read = step_kinds(options, EngineConfig().block_tokens);
  if (!step_kinds_read) return step_kinds_read.error();
  const std::vector<StepKind>& kinds = *step_kinds_read;
  const EngineConfig config = engine_config(options, kinds, *kv_dtype);
  boost::json::object work = model_work(**model, *kv_dtype);
  work["rows"] = boost::json::value_from(options.rows);
  work["prompts"] = boost::json::value_from(options.prompts);
  if (!options.adapted.empty()) {
    work["adapted"] = boost::json::value_from(options.adapted);
    work["adapter_rank"] = options.adapter_rank;
  }
  work["depth"] = options.depth;
  if (options.row_tokens > 1) work["row_tokens"] = options.row_tokens;
  work["batch_invariant"] = options.batch_invariant;
  if (options.absorbed_latents) work["absorbed_latents"] = true;
  Result<Record> record = Record::create(
      "ops", std::move(work), {{"runs", options.bench.runs}, {"check", options.bench.check}}, options.json_path);
  if (!record) return record.error();

  // A device's limits, its weights and each of its steps take about as long: the checks take most of a step.
  const auto num_devices = static_cast<double>(options.devices.size());
  TimeLeft time_left(num_devices * (2 + static_cast<double>(kinds.size())));
  Result<std::vector<BenchDevice>> devices = prepare_devices(options, *model, config, &*record, &time_left);
  if (!devices) return devices.error();
  std::vector<MeasuredStep> all;
  for (const StepKind& kind : kinds) {
    Result<std::vector<StepFigures>> steps =
        bench_step(*model, kind, options.bench, &*devices, [&](const std::string& text) { time_left.begin(text); });
    if (!steps) return steps.error();
    time_left.done(num_devices);
    time_left.clear();
    for (const StepFigures& step : *steps) {
      print_step(kind, step);
      record_step(kind, step, &*record);
    }
    all.push_back({kind, *std::move(steps)});
  }
  print_furthest(all);
  const Status checks = print_checks(all);
  const Status written = record->finish();
  return checks ? written : checks;
}

}  // namespace

void add_ops_command(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "ops",
      "Each kernel of a model's steps on each device: time, share of the limits that the same run measures, and error "
      "against a float64 reference. Exit code 1 when a kernel's error is beyond its bound");
  command->add_option("-m,--model", options->model, "GGUF file or synthetic:<shape>:<encoding>")->capture_default_str();
  command->add_option("-d,--device", options->devices, "Devices, in turn in each run (repeat)")->capture_default_str();
  command->add_option("-r,--rows", options->rows, "Decode steps: numbers of rows")
      ->delimiter(',')
      ->check(CLI::Range(1u, kRowsMax))
      ->capture_default_str();
  command
      ->add_option("--adapted", options->adapted,
                   "Decode steps whose rows have adapters in turn: ROWS:ADAPTERS, 32:1,256:8")
      ->delimiter(',');
  command->add_option("--adapter-rank", options->adapter_rank, "Of these adapters, on every matrix of the layers")
      ->check(CLI::Range(1u, kAdapterRankMax))
      ->capture_default_str();
  command->add_option("--depth", options->depth, "Tokens that each decoding row has in the KV cache")
      ->check(CLI::Range(1u, 1u << 20))
      ->capture_default_str();
  command
      ->add_option("--tokens", options->row_tokens,
                   "Tokens of each decoding row in a step, as a row has that verifies drafts")
      ->check(CLI::Range(1u, kDecodeItemTokens))
      ->capture_default_str();
  command->add_option("-p,--prompts", options->prompts, "Prompt steps: numbers of tokens, of a prompt's beginning")
      ->delimiter(',')
      ->check(CLI::Range(1u, 1u << 16))
      ->capture_default_str();
  command->add_option("--runs", options->bench.runs, "Counted runs of each step, after two that warm up")
      ->check(CLI::Range(1u, 10000u))
      ->capture_default_str();
  command->add_option("--kv", options->kv_dtype, fmt::format("KV cache dtype: {}", kKvDTypeNames))
      ->capture_default_str();
  command->add_flag("--absorbed-latents", options->absorbed_latents,
                    "Prompts of latent attention stay in the absorbed form");
  command->add_flag("--batch-invariant", options->batch_invariant, "Kernels whose numbers do not depend on the batch");
  command->add_flag("--no-check", options->no_check, "Times alone");
  command->add_option("--json", options->json_path, "Also write the figures and their samples to this file");
  on_parsed(command, exit_code, [options] {
    options->bench.check = !options->no_check;
    return run(*options);
  });
}

}  // namespace llmrt::bench
