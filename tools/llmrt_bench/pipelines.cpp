// llmrt-bench pipelines: compiles what steps of every size run, for each encoding and cache. With a driver that has no
// device behind it (tools/compilers) nothing else of it can be tried.
#include <fmt/format.h>

#include <set>

#include "core/engine/lower.h"
#include "core/schedule/step_sizes.h"
#include "tools/llmrt_bench/commands.h"
#include "tools/llmrt_bench/engine_run.h"
#include "tools/llmrt_bench/time_left.h"

namespace llmrt::bench {
namespace {

struct Options {
  std::vector<std::string> models{"synthetic:smollm2-135m:q4_0"}, kv_dtypes{"f16"};
  std::string device = "auto";
  uint32_t tokens_max = 512;
};

// Every size of steps, of prompts, of decode alone and batch-invariant.
std::vector<const OpList*> lists_of(const Options& options, bool has_invariant, Lowering* lowering) {
  std::set<uint32_t> sizes;
  for (uint32_t tokens = 1; tokens <= options.tokens_max; ++tokens) sizes.insert(step_size_from(tokens));
  std::vector<const OpList*> lists;
  for (const uint32_t size : sizes) {
    if (size > options.tokens_max) continue;
    lists.push_back(&lowering->forward_list(size));
    lists.push_back(&lowering->forward_list(size, false, true));
    lists.push_back(&lowering->sample_list(size));
    if (!has_invariant) continue;
    lists.push_back(&lowering->forward_list(size, true, true));
    lists.push_back(&lowering->sample_list(size, true));
  }
  return lists;
}

Status compile(const Options& options, const std::string& model_name, KvDType kv_dtype, TimeLeft* time_left) {
  time_left->begin(fmt::format("{} KV {}", model_name, kv_dtype_name(kv_dtype)));
  Result<std::shared_ptr<const Model>> model = load_model(model_name);
  if (!model) return model.error();
  EngineConfig config;
  config.kv_dtype = kv_dtype;
  config.context_max = std::min(1024u, (*model)->config.context_max);
  config.sequences_max = 16;
  config.step_tokens_max = config.sample_rows_max = options.tokens_max;
  config.kv_tokens = 2 * config.context_max;
  const SteadyClock clock;
  Result<EngineUnderTest> under = open_engine(options.device, *model, config, &clock);
  if (!under) return under.error();
  Backend& backend = under->engine->backend();
  Lowering lowering(*model, backend.caps(), options.tokens_max, options.tokens_max);
  const std::vector<const OpList*> lists = lists_of(options, backend.caps().batch_invariant, &lowering);
  if (Status status = backend.compile(lists); !status) return status;
  time_left->done(1);
  time_left->clear();
  fmt::print("{} ({}, {}): {} KV {}: {} lists compiled\n", under->device_id, under->device_name, under->tier,
             model_name, kv_dtype_name(kv_dtype), lists.size());
  return {};
}

Status run(const Options& options) {
  TimeLeft time_left(static_cast<double>(options.models.size() * options.kv_dtypes.size()));
  for (const std::string& model : options.models)
    for (const std::string& name : options.kv_dtypes) {
      const Result<KvDType> kv_dtype = kv_dtype_of(name);
      if (!kv_dtype) return kv_dtype.error();
      if (Status status = compile(options, model, *kv_dtype, &time_left); !status) return status;
    }
  return {};
}

}  // namespace

void add_pipelines_command(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "pipelines",
      "Compile the kernels of steps of every size. LLMRT_VULKAN_STATISTICS=FILE keeps what a Vulkan driver "
      "says of each");
  command->add_option("-m,--model", options->models, "GGUF files or synthetic:<shape>:<encoding> (repeat)")
      ->capture_default_str();
  command->add_option("-d,--device", options->device, "The device")->capture_default_str();
  command->add_option("--kv", options->kv_dtypes, fmt::format("KV cache dtypes: {} (repeat)", kKvDTypeNames))
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--tokens-max", options->tokens_max, "Tokens of the largest step")
      ->check(CLI::Range(1u, 8192u))
      ->capture_default_str();
  on_parsed(command, exit_code, [options] { return run(*options); });
}

}  // namespace llmrt::bench
