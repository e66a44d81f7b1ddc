// llmrt-bench pipelines: compiles what steps of every size run, for each encoding and cache. With a driver that has no
// device behind it (tools/compilers) nothing else of it can be tried.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "backends/backends.h"
#include "core/engine/lower.h"
#include "core/engine/pool_shapes.h"
#include "core/engine/pool_sizing.h"
#include "core/engine/warm_up.h"
#include "core/schedule/step_sizes.h"
#include "tools/llmrt_bench/commands/commands.h"
#include "tools/llmrt_bench/record/time_left.h"

namespace llmrt::bench {
namespace {

struct Options {
  std::vector<std::string> models{"synthetic:smollm2-135m:q4_0"}, kv_dtypes{"f16"};
  std::string device = "auto";
  uint32_t tokens_max = 512;
};

constexpr uint32_t kAdapterRank = 16;

// Every size of steps, of prompts, of decode alone and batch-invariant, and with adapters.
std::vector<const SealedList*> lists_of(uint32_t tokens_max, bool has_invariant, Lowering* lowering) {
  std::set<uint32_t> sizes;
  for (uint32_t tokens = 1; tokens <= tokens_max; ++tokens) sizes.insert(std::min(step_size_from(tokens), tokens_max));
  std::vector<const SealedList*> lists;
  for (const uint32_t size : sizes) {
    lists.push_back(&lowering->forward_list(size));
    lists.push_back(&lowering->forward_list(size, false, true));
    lists.push_back(&lowering->sample_list(size));
    lists.push_back(&lowering->forward_list(size, false, false, Adapted::kMatrices));
    lists.push_back(&lowering->sample_list(size, false, Adapted::kMatrices));
    if (lowering->expanded_heads() > 0)
      lists.push_back(
          &lowering->forward_list(size, false, false, Adapted::kNothing, false, lowering->expanded_heads()));
    if (!has_invariant) continue;
    lists.push_back(&lowering->forward_list(size, true, true));
    lists.push_back(&lowering->sample_list(size, true));
  }
  return lists;
}

// Nothing is computed: a driver without a device would wait for results that never come.
Status compile(const Options& options, const std::shared_ptr<const Model>& model, KvDType kv_dtype,
               TimeLeft* time_left) {
  time_left->begin(fmt::format("{} KV {}", model->path, kv_dtype_name(kv_dtype)));
  Result<std::unique_ptr<Backend>> backend = open_device(options.device);
  if (!backend) return backend.error();
  const Caps& caps = (*backend)->caps();
  EngineConfig config;
  config.kv_dtype = kv_dtype;
  config.context_max = std::min(1024u, model->config.context_max);
  config.sequences_max = 16;
  config.step_tokens_max = config.sample_rows_max = std::min(options.tokens_max, caps.step_tokens_max);
  config.kv_tokens = config.context_max;
  const PoolShapes shapes(model->config, config);
  MemoryPlan plan;
  plan.num_blocks = static_cast<uint32_t>(config.kv_tokens / config.block_tokens);
  plan.block_tokens = config.block_tokens;
  plan.pools = shapes.books(plan.num_blocks, 0);
  Lowering lowering(model, caps, config.step_tokens_max, config.sample_rows_max);
  lowering.set_adapter_rank(kAdapterRank);
  const KvGroup expanded = expanded_pool_of(config, caps, model->config, kExpandedBytesMax);
  lowering.set_expanded_pool(expanded);
  const StateConfig state =
      lowering.state_config(config, plan_limits(scheduler_config(config, plan, {})), config.kv_tokens, **backend);
  if (Status status = (*backend)->load_weights(model->weights, {}); !status) return status;
  if (Status status = (*backend)->create_state(state); !status) return status;
  if (Status status = (*backend)->create_kv_pools(with_expanded(shapes.groups(plan.num_blocks, 0), expanded)); !status)
    return status;
  const uint64_t table_bytes = model->weights.groups.size() * sizeof(AdapterEntry);
  if (Status status = (*backend)->create_adapter_pool({.bytes = table_bytes, .slots_max = 1}); !status) return status;
  const std::vector<const SealedList*> lists = lists_of(config.step_tokens_max, caps.batch_invariant, &lowering);
  if (Status status = (*backend)->compile(lists); !status) return status;
  time_left->done(1);
  time_left->clear();
  fmt::print("{} ({}, {}): {} KV {}: {} lists compiled\n", caps.device_id, caps.device_name, caps.tier, model->path,
             kv_dtype_name(kv_dtype), lists.size());
  return {};
}

Status run(const Options& options) {
  std::vector<KvDType> kv_dtypes;
  for (const std::string& name : options.kv_dtypes) {
    const Result<KvDType> kv_dtype = kv_dtype_of(name);
    if (!kv_dtype) return kv_dtype.error();
    kv_dtypes.push_back(*kv_dtype);
  }
  TimeLeft time_left(static_cast<double>(options.models.size() * kv_dtypes.size()));
  for (const std::string& name : options.models) {
    Result<std::shared_ptr<const Model>> model = load_model(name);
    if (!model) return model.error();
    for (const KvDType kv_dtype : kv_dtypes)
      if (Status status = compile(options, *model, kv_dtype, &time_left); !status) return status;
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
