// llmrt-bench batching: continuous batching beside static and dynamic batching, by the scheduler alone: no model, a
// step takes a millisecond. Then chunk sizes and KV block sizes, counted likewise and, where asked for, on devices.
#include <fmt/format.h>

#include <algorithm>

#include "backends/backends.h"
#include "core/study/dry_run.h"
#include "tools/llmrt_bench/commands/commands.h"
#include "tools/llmrt_bench/record/record.h"
#include "tools/llmrt_bench/serving/batch_sizes.h"
#include "tools/llmrt_bench/serving/parts.h"
#include "tools/llmrt_bench/serving/workload.h"

namespace llmrt::bench {
namespace {

struct Options {
  std::vector<uint32_t> lengths{3, 8, 2, 5}, prompts{1}, arrivals_ms{0};
  uint32_t num_drawn = 0;  // requests drawn instead
  uint32_t chunk_tokens = 512;
  BatchSizes sizes;
  std::string model, kv_dtype = "f16";
  std::vector<std::string> devices;
  int64_t wait_ms = 4;
  size_t columns = 100;
  std::string json_path;
};

// The last of a list stands for all that follow.
uint32_t nth(const std::vector<uint32_t>& list, size_t i) {
  return list[std::min(i, list.size() - 1)];
}

std::vector<DryRequest> requests_of(const Options& options) {
  std::vector<DryRequest> requests;
  if (options.num_drawn > 0) {
    WorkloadSpec spec;
    spec.num_requests = options.num_drawn;
    for (const WorkItem& item : make_workload(spec, 2))
      requests.push_back(
          {static_cast<uint32_t>(item.prompt.size()), item.output_tokens, nth(options.arrivals_ms, requests.size())});
  } else {
    for (size_t i = 0; i < options.lengths.size(); ++i)
      requests.push_back({nth(options.prompts, i), options.lengths[i], nth(options.arrivals_ms, i)});
  }
  std::ranges::stable_sort(requests, {}, &DryRequest::arrival_ms);
  return requests;
}

Status compare_batchings(const Options& options, std::span<const DryRequest> requests, Record* record) {
  SchedulerConfig config = dry_config(requests, options.sizes.num_rows, options.sizes.step_tokens, 16);
  config.chunk_tokens = options.chunk_tokens;
  config.batch_wait_ms = options.wait_ms;
  fmt::print(". waits   P prompt   # answer   - ended, and its batch has not\n");
  for (const Batching batching : {Batching::kContinuous, Batching::kStatic, Batching::kDynamic}) {
    config.batching = batching;
    const Result<DryRun> dry = dry_run(config, requests);
    if (!dry) return dry.error();
    fmt::print("\n{}: {} steps, {} tokens computed, {} of padding, utilisation {:.2f} %\n", batching_name(batching),
               dry->steps.size(), dry->useful_tokens, dry->padded_tokens, 100 * dry->utilisation());
    fmt::print("{}", timeline(dry->requests, dry->steps, options.columns));
    record->add({batching_name(batching),
                 "",
                 {{"steps", "steps", static_cast<double>(dry->steps.size())},
                  {"useful", "tokens", static_cast<double>(dry->useful_tokens)},
                  {"padded", "tokens", static_cast<double>(dry->padded_tokens)},
                  {"utilisation", "share", dry->utilisation()}}});
  }
  return {};
}

boost::json::object work_of(const Options& options, const Model* model) {
  const BatchSizes& sizes = options.sizes;
  boost::json::object work = model == nullptr ? boost::json::object() : model_work(*model, sizes.kv_dtype);
  work["lengths"] = boost::json::value_from(options.lengths);
  work["prompts"] = boost::json::value_from(options.prompts);
  work["arrivals_ms"] = boost::json::value_from(options.arrivals_ms);
  work["drawn"] = options.num_drawn;
  work["sequences"] = sizes.num_rows;
  work["step_tokens"] = sizes.step_tokens;
  work["chunk_tokens"] = options.chunk_tokens;
  work["batch_wait_ms"] = options.wait_ms;
  work["streams"] = sizes.num_streams;
  work["long_prompt"] = sizes.prompt_tokens;
  return work;
}

Status run(Options options) {
  const Result<KvDType> kv_dtype = kv_dtype_of(options.kv_dtype);
  if (!kv_dtype) return kv_dtype.error();
  BatchSizes& sizes = options.sizes;
  sizes.kv_dtype = *kv_dtype;
  std::shared_ptr<const Model> model;
  if (!options.model.empty()) {
    Result<std::shared_ptr<const Model>> loaded = load_model(options.model);
    if (!loaded) return loaded.error();
    model = *loaded;
    sizes.prompt_tokens = std::min(sizes.prompt_tokens, model->config.context_max - kGapRoomTokens);
  }
  Result<Record> record = Record::create("batching", work_of(options, model.get()),
                                         {{"model", options.model}, {"repeats", sizes.num_repeats}}, options.json_path);
  if (!record) return record.error();
  const std::vector<DryRequest> requests = requests_of(options);
  if (Status status = compare_batchings(options, requests, &*record); !status) return status;
  SteadyClock clock;
  std::vector<SizedDevice> devices;
  for (const std::string& name : options.devices) {
    Result<std::unique_ptr<Backend>> backend = open_device(name);
    if (!backend) return backend.error();
    Result<LoadedDevice> device = LoadedDevice::load(std::move(*backend), model, &clock);
    if (!device) return device.error();
    record->add_device(device->caps());
    std::string id = device->caps().device_id;
    devices.push_back({std::move(id), *std::move(device)});
  }
  if (Status status = compare_chunks(sizes, model.get(), devices, clock, &*record); !status) return status;
  if (Status status = compare_blocks(sizes, requests, model.get(), devices, clock, &*record); !status) return status;
  return record->finish();
}

}  // namespace

void add_batching_command(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("batching",
                         "Who runs when with continuous, static and dynamic batching, counted without a "
                         "device; chunk and KV block sizes, counted and measured");
  const auto options = std::make_shared<Options>();
  const auto list = [&](const char* name, std::vector<uint32_t>& values, uint32_t least, const char* help) {
    command->add_option(name, values, help)->delimiter(',')->check(CLI::Range(least, 1u << 20))->capture_default_str();
  };
  list("--lengths", options->lengths, 1, "tokens of each answer");
  list("--prompts", options->prompts, 1, "tokens of each prompt; the last counts for all that follow");
  list("--arrivals-ms", options->arrivals_ms, 0, "of each request; the last counts for all that follow");
  const auto number = [&](const char* name, uint32_t& value, const char* help) {
    command->add_option(name, value, help)->check(CLI::Range(1u, 65536u))->capture_default_str();
  };
  number("--requests", options->num_drawn, "draw so many instead: prompts of 64 to 1,024 tokens, answers of about 128");
  number("--sequences", options->sizes.num_rows, "rows of a batch");
  number("--step-tokens", options->sizes.step_tokens, "tokens of one step, at most");
  number("--chunk-tokens", options->chunk_tokens, "of prompts, in a step in which others decode");
  command->add_option("--batch-wait-ms", options->wait_ms, "dynamic batching: until a batch that is not full begins")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command->add_option("--columns", options->columns, "of the timeline")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--json", options->json_path, "Also write the figures to this file");
  auto* model = command->add_option("-m,--model", options->model,
                                    "GGUF file or synthetic:<shape>:<encoding>: counts bytes of keys and values");
  command->add_option("-d,--device", options->devices, "Measure sizes on these devices, in turn (repeat)")
      ->needs(model);
  command->add_option("--kv", options->kv_dtype, fmt::format("KV cache dtype: {}", kKvDTypeNames))
      ->capture_default_str();
  list("--chunks", options->sizes.chunks, 2, "sizes: tokens of a step with a prompt beside streams");
  command->add_option("--blocks", options->sizes.blocks, "sizes: tokens of a KV block")
      ->delimiter(',')
      ->check(CLI::IsMember({16, 32, 64}))
      ->capture_default_str();
  number("--streams", options->sizes.num_streams, "chunks: streams that decode");
  number("--long-prompt", options->sizes.prompt_tokens, "chunks: tokens of the prompt that arrives");
  number("--repeats", options->sizes.num_repeats, "of each measurement, after a warm-up");
  on_parsed(command, exit_code, [options] { return run(*options); });
}

}  // namespace llmrt::bench
