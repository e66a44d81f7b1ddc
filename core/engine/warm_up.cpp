#include "core/engine/warm_up.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/checked_math.h"
#include "core/engine/adapter_host.h"
#include "core/engine/disk_setup.h"
#include "core/engine/pool_sizing.h"
#include "core/engine/probe_plan.h"

namespace llmrt {
namespace {

// A processor that plays the device is slow and shares the memory: its steps stay small, so that a stream is not
// stalled for seconds by somebody's prompt.
constexpr uint32_t kChunkTokens = 512;  // where the engine chooses: 12 ms of an H200 beside rows of an 8B model
constexpr uint32_t kCpuStepTokens = 256;

uint64_t physical_memory() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

Status check_ops(const Backend& backend, const OpList& list) {
  const std::vector<std::string> missing = backend.unsupported();
  for (const Op& op : list.ops)
    if (std::find(missing.begin(), missing.end(), op_name(op)) != missing.end())
      return make_error(ErrorCode::kUnsupported, "{} does not execute {}", backend.caps().device_id, op_name(op));
  return {};
}

// One sequence of as many tokens as a step may have, and as many sampled rows.
ProbeShape largest_step(const EngineConfig& config) {
  const uint32_t num_tokens = std::min(config.step_tokens_max, config.context_max);
  return {1, num_tokens, 0, std::min(config.sample_rows_max, num_tokens), config.block_tokens};
}

// What the largest step and a first request's will run: one after the other they would compile for seconds. Steps of
// some hundred tokens may have kernels of their own.
Status compile_first_lists(const EngineConfig& config, Lowering* lowering, Backend* backend) {
  std::vector<const SealedList*> lists;
  const bool invariant = config.batch_invariant;
  for (const Adapted adapted : lowering->adapted_kinds()) {
    for (const uint32_t tokens : {1u, 16u, 32u, 64u, std::min(512u, config.step_tokens_max), config.step_tokens_max})
      lists.push_back(&lowering->forward_list(tokens, invariant, invariant || tokens == 1, adapted));
    for (const uint32_t tokens : {std::min(512u, config.step_tokens_max), config.step_tokens_max})
      if (const uint32_t heads = invariant ? 0 : lowering->expanded_heads(); heads > 0)
        lists.push_back(&lowering->forward_list(tokens, false, false, adapted, false, heads));
    for (const uint32_t sampled : {1u, config.sample_rows_max})
      lists.push_back(&lowering->sample_list(sampled, invariant, adapted));
  }
  return backend->compile(lists);
}

// Milliseconds a token.
Result<double> run_largest_step(const ProbeShape& shape, std::span<const KvPoolSize> pools, uint32_t vocab_size,
                                Lowering* lowering, Backend* backend) {
  double ms = 0;
  for (const IterationPlan& plan : {probe_setup_plan(shape, 0, pools), probe_plan(shape, vocab_size)}) {
    Result<StepOutput> output = run_probe(plan, lowering, backend);
    if (!output) return output.error();
    ms = output->forward_ms;
  }
  return ms / shape.num_tokens;
}

// What moving a block of group 0 takes, from a few of each group by their bytes; measured the second time, when
// everything is compiled and touched.
Status time_moves(std::span<const KvGroup> groups, const SealedList& memory, Backend* backend, CostPrior* prior) {
  for (int round = 0; round < 2; ++round) {
    for (const bool is_load : {false, true}) {
      ForwardInputs inputs;
      std::vector<BlockCopy>& moves = is_load ? inputs.block_loads : inputs.block_stores;
      double num_blocks = 0;
      for (uint32_t g = 0; g < groups.size(); ++g)
        for (uint32_t i = 0; i < std::min({groups[g].num_blocks, groups[g].num_host_blocks, 16u}); ++i)
          moves.push_back({i, i, groups[g].block_tokens, g});
      for (const BlockCopy& move : moves)
        num_blocks +=
            static_cast<double>(groups[move.kv_group].bytes_block()) / static_cast<double>(groups[0].bytes_block());
      Result<StepOutput> output = run_moves(inputs, memory, backend);
      if (!output) return output.error();
      (is_load ? prior->load_ms : prior->store_ms) = output->memory_ms / num_blocks;
    }
  }
  return {};
}

}  // namespace

std::vector<KvGroup> with_expanded(std::vector<KvGroup> groups, const KvGroup& expanded) {
  if (expanded.num_blocks > 0) groups.push_back(expanded);
  return groups;
}

Result<EngineConfig> resolve(EngineConfig config, const Model& model, const Backend& backend) {
  const Caps& caps = backend.caps();
  const auto out_of_range = [](const char* what, uint64_t value, const char* range) {
    return make_error(ErrorCode::kInvalidArgument, "{}: expected {}, found {}", what, range, value);
  };
  if (config.context_max == 0) config.context_max = model.config.context_max;
  if (config.context_max > model.config.context_max)
    return make_error(ErrorCode::kInvalidArgument,
                      "context: expected at most {} (what the model was trained for), found {}",
                      model.config.context_max, config.context_max);
  if (config.block_tokens != 16 && config.block_tokens != 32 && config.block_tokens != 64)
    return out_of_range("KV block size", config.block_tokens, "16, 32 or 64 tokens");
  if (config.sequences_max == 0 || config.sequences_max > 4096)
    return out_of_range("sequences", config.sequences_max, "1 to 4096");
  if (config.batch_invariant && !caps.batch_invariant)
    return make_error(ErrorCode::kUnsupported, "batch-invariant: {} has no such kernels", caps.device_id);
  if (config.step_tokens_max == 0) return out_of_range("step tokens", 0, "at least 1");
  if (config.asked.step_tokens && config.step_tokens_max > caps.step_tokens_max)
    return make_error(ErrorCode::kInvalidArgument, "step tokens: {} were asked for, {} takes at most {}",
                      config.step_tokens_max, caps.device_id, caps.step_tokens_max);
  config.step_tokens_max = std::min(config.step_tokens_max, caps.step_tokens_max);
  if (caps.is_cpu) {
    if (!config.asked.step_tokens) config.step_tokens_max = std::min(config.step_tokens_max, kCpuStepTokens);
    config.idle_step_ms = 0;
  }
  // Every running row must be able to take part in a step.
  const uint64_t logits_rows_max = caps.range_bytes_max / (uint64_t{model.config.vocab_size} * 4);
  if (logits_rows_max == 0)
    return make_error(ErrorCode::kMissingFeature, "one row of {} logits passes the device's range of {} bytes",
                      model.config.vocab_size, caps.range_bytes_max);
  config.sample_rows_max =
      static_cast<uint32_t>(std::min<uint64_t>({config.sample_rows_max, logits_rows_max, config.step_tokens_max}));
  if (config.asked.chunk_tokens && config.chunk_tokens > config.step_tokens_max)
    return make_error(ErrorCode::kInvalidArgument, "chunk tokens: {} were asked for, a step has at most {}",
                      config.chunk_tokens, config.step_tokens_max);
  config.chunk_tokens = std::min(config.chunk_tokens, config.step_tokens_max);
  if (Status status = check_kv_dtype(config.kv_dtype, model, caps); !status) return status.error();
  if (const uint64_t host_bytes = physical_memory(); config.asked.kv_host && config.kv_host_bytes > host_bytes)
    return make_error(ErrorCode::kInvalidArgument, "KV host memory: {} MiB were asked for, the host has {} in all",
                      config.kv_host_bytes >> 20, host_bytes >> 20);
  if (Status status = resolve_disk(model, &config); !status) return status.error();
  if (config.adapters.slots > kAdapterSlotsMax)
    return out_of_range("adapter slots", config.adapters.slots, "at most 64");
  if (config.adapters.slots > 0 && (config.adapters.rank_max == 0 || config.adapters.rank_max > kAdapterRankMax))
    return out_of_range("adapter rank", config.adapters.rank_max, "1 to 128");
  config.adapters.rank_max = round_up(config.adapters.rank_max, kAdapterRankStep);
  if (config.on_exhaustion == OnExhaustion::kSwap && config.kv_host_bytes == 0)
    return make_error(ErrorCode::kInvalidArgument, "on exhaustion swap: expected a size of the host tier, found none");
  return config;
}

Status check_heads(const Model& model, const Caps& caps) {
  for (uint32_t i = 0; i < model.config.num_layers(); ++i) {
    const LayerSpec& layer = model.config.layers[i];
    const bool is_latent = layer.attention == AttentionKind::kLatent;
    if (is_latent && caps.latent_row_max == 0)
      return make_error(ErrorCode::kUnsupported,
                        "unsupported model: layer {}: {}: expected a device with kernels for latent attention", i,
                        caps.device_id);
    const uint32_t most = is_latent ? caps.latent_row_max : caps.head_dim_max;
    if (layer.head_dim > most)
      return make_error(ErrorCode::kUnsupported,
                        "unsupported model: layer {}: {}: expected heads of at most {} numbers, found {}", i,
                        caps.device_id, most, layer.head_dim);
  }
  return {};
}

namespace {

// What stands before weights are loaded: a configuration for the device, and a lowering whose smallest lists it
// executes.
struct Fitted {
  EngineConfig config;
  std::unique_ptr<Lowering> lowering;
};
Result<Fitted> fit(const EngineConfig& wanted, std::shared_ptr<const Model> model, const Backend& backend,
                   bool keeps_final) {
  if (Status status = check_layers(model->config.layers); !status) return status.error();
  if (Status status = check_heads(*model, backend.caps()); !status) return status.error();
  Result<EngineConfig> config = resolve(wanted, *model, backend);
  if (!config) return config.error();
  auto lowering =
      std::make_unique<Lowering>(std::move(model), backend.caps(), config->step_tokens_max, config->sample_rows_max);
  if (keeps_final) lowering->keep_final();
  if (config->adapters.slots > 0) lowering->set_adapter_rank(config->adapters.rank_max);
  const Adapted most = lowering->adapted_kinds().back();
  for (const SealedList* list :
       {&lowering->forward_list(1, false, false, most), &lowering->sample_list(1, false, most)})
    if (Status status = check_ops(backend, *list); !status) return status.error();
  return Fitted{*std::move(config), std::move(lowering)};
}

}  // namespace

Result<WarmEngine> warm_up(const EngineConfig& wanted, std::shared_ptr<const Model> model,
                           const std::vector<int32_t>& end_of_generation, Backend* backend, const Progress& progress,
                           const BesideMemory& beside) {
  Result<Fitted> fitted = fit(wanted, model, *backend, beside.reads_hidden);
  if (!fitted) return fitted.error();
  EngineConfig* const config = &fitted->config;
  WarmEngine warm{*config, {}, std::move(fitted->lowering), {}};
  const Caps& caps = backend->caps();

  const PoolShapes shapes(model->config, *config);
  // What stands beside it counts as others' in the terms, and as the engine's own in what it may take.
  MemoryReport before = beside.before.value_or(backend->memory());
  before.free_bytes -= std::min(before.free_bytes, beside.fixed_bytes);
  if (config->memory_bytes_max > 0)
    config->memory_bytes_max -= std::min(config->memory_bytes_max - 1, beside.fixed_bytes);
  if (Status status = backend->load_weights(model->weights, progress); !status) return status.error();
  Result<uint32_t> penalty_rows = penalty_rows_of(*config, caps, model->config.vocab_size, before, backend->memory());
  if (!penalty_rows) return penalty_rows.error();
  warm.config.penalty_rows_max = config->penalty_rows_max = *penalty_rows;
  const uint64_t copies_max = f16_copies_bound(*config, caps, shapes, before, backend->memory(), beside);
  Status copied = backend->add_f16_copies(copies_max);
  // Somebody else took it meanwhile: without, there may be room for the pool.
  if (!copied && copied.error().code == ErrorCode::kOutOfMemory) copied = backend->add_f16_copies(0);
  if (!copied) return copied.error();
  const uint64_t kv_tokens_max = pool_tokens_bound(*config, caps, shapes);
  MemoryPlan bound;  // the pool is not sized yet; the inputs must hold whatever it turns out to be
  bound.num_blocks = static_cast<uint32_t>(kv_tokens_max / config->block_tokens);
  bound.block_tokens = config->block_tokens;
  bound.num_host_blocks = host_blocks_of(*config, caps, shapes);
  bound.pools = shapes.books(bound.num_blocks, bound.num_host_blocks);
  const AdapterPoolConfig adapters{adapter_pool_bytes(config->adapters, *model, caps.activation_dtype),
                                   config->adapters.slots};
  if (Status status = backend->create_adapter_pool(adapters); !status) return status.error();
  const KvGroup expanded = expanded_pool(*config, caps, model->config, before, backend->memory());
  warm.lowering->set_expanded_pool(expanded);
  const StateConfig state = warm.lowering->state_config(
      *config, plan_limits(scheduler_config(*config, bound, end_of_generation)), kv_tokens_max, *backend);
  if (Status status = backend->create_state(state); !status) return status.error();
  // A processor's memory is planned, not measured: the largest step would take seconds there.
  if (!caps.is_cpu) {
    const ProbeShape largest = largest_step(*config);
    if (Status status = backend->create_kv_pools(with_expanded(shapes.groups(probe_blocks(largest), 0), expanded));
        !status)
      return status.error();
    if (Status status = compile_first_lists(*config, warm.lowering.get(), backend); !status) return status.error();
    Result<double> token_ms = run_largest_step(largest, shapes.books(probe_blocks(largest), 0),
                                               model->config.vocab_size, warm.lowering.get(), backend);
    if (!token_ms) return token_ms.error();
    warm.cost_prior.token_ms = *token_ms;
  }
  Result<MemoryPlan> plan = size_pools(*config, caps, shapes, before, backend->memory(), beside, expanded);
  if (!plan) return plan.error();
  warm.memory_plan = *plan;
  warm.memory_plan.penalty_rows = config->penalty_rows_max;
  warm.memory_plan.sequences = config->sequences_max;
  warm.memory_plan.host_is_for_disk = !config->disk.folder.empty() && wanted.kv_host_bytes == 0;
  warm.memory_plan.disk_bytes = config->disk.folder.empty() ? 0 : config->disk.bytes_max;
  warm.memory_plan.disk_folder = config->disk.folder;
  warm.memory_plan.adapter_bytes = adapters.bytes;
  warm.memory_plan.draft_fixed_bytes = beside.fixed_bytes;
  warm.memory_plan.draft_block_bytes = beside.block_bytes;
  if (!caps.is_cpu && !caps.unified_memory) warm.memory_plan.used_before_bytes -= beside.fixed_bytes;
  warm.memory_plan.penalty_row_bytes = uint64_t{model->config.vocab_size} * 4;
  const std::vector<KvGroup> groups = shapes.groups(plan->num_blocks, plan->num_host_blocks);
  if (Status status = backend->create_kv_pools(with_expanded(groups, expanded)); !status) return status.error();
  if (plan->num_host_blocks > 0)
    if (Status status = time_moves(groups, warm.lowering->memory_list(), backend, &warm.cost_prior); !status)
      return status.error();
  return warm;
}

Result<WarmModel> warm_up_beside(const EngineConfig& wanted, std::shared_ptr<const Model> model, Backend* backend,
                                 const Progress& progress) {
  Result<Fitted> fitted = fit(wanted, model, *backend, model->draft_input.has_value());
  if (!fitted) return fitted.error();
  const EngineConfig* const config = &fitted->config;
  std::unique_ptr<Lowering>& lowering = fitted->lowering;
  const Caps& caps = backend->caps();
  if (Status status = backend->load_weights(model->weights, progress); !status) return status.error();
  const PoolShapes shapes(model->config, *config);
  const uint64_t kv_tokens_max = pool_tokens_bound(*config, caps, shapes);
  MemoryPlan bound;
  bound.block_tokens = config->block_tokens;
  bound.num_blocks = static_cast<uint32_t>(kv_tokens_max / config->block_tokens);
  bound.pools = shapes.books(bound.num_blocks, 0);
  const StateConfig state =
      lowering->state_config(*config, plan_limits(scheduler_config(*config, bound, {})), kv_tokens_max, *backend);
  if (Status status = backend->create_state(state); !status) return status.error();
  if (!caps.is_cpu) {
    const ProbeShape largest = largest_step(*config);
    const uint32_t num_blocks = probe_blocks(largest);
    if (Status status = backend->create_kv_pools(shapes.groups(num_blocks, 0)); !status) return status.error();
    if (Status status = compile_first_lists(*config, lowering.get(), backend); !status) return status.error();
    Result<double> token_ms =
        run_largest_step(largest, shapes.books(num_blocks, 0), model->config.vocab_size, lowering.get(), backend);
    if (!token_ms) return token_ms.error();
  }
  const MemoryReport memory = backend->memory();
  return WarmModel{*config, std::move(lowering), memory.peak_bytes - std::min(memory.peak_bytes, memory.kv_bytes)};
}

SchedulerConfig scheduler_config(const EngineConfig& config, const MemoryPlan& plan,
                                 std::vector<int32_t> end_of_generation) {
  SchedulerConfig out;
  out.context_max = config.context_max;
  out.sequences_max = config.sequences_max;
  out.step_tokens_max = config.step_tokens_max;
  out.sample_rows_max = config.sample_rows_max;
  out.penalty_rows_max = config.penalty_rows_max;
  out.chunks_by_need = config.chunk_tokens == 0;
  out.chunk_tokens = out.chunks_by_need ? std::min(kChunkTokens, config.step_tokens_max) : config.chunk_tokens;
  out.reserve_output_tokens = config.reserve_output_tokens;
  out.watermark = config.watermark;
  out.state_interval = config.state_interval;
  out.tpot_target_ms = config.tpot_target_ms;
  out.idle_step_ms = config.idle_step_ms;
  out.learns_output = config.learns_output;
  out.batching = config.batching;
  out.batch_wait_ms = config.batch_wait_ms;
  out.ttft_target_ms = config.ttft_target_ms;
  out.class_shares = config.class_shares;
  out.queue_tokens_max = config.queue_tokens_max;
  out.queue_branches_max = config.queue_branches_max;
  out.queue_bytes_max = config.queue_bytes_max;
  out.kv_pools = plan.pools;
  if (out.kv_pools.empty()) out.kv_pools = {{plan.num_blocks, plan.block_tokens}};
  out.prefix_cache = config.prefix_cache;
  out.on_exhaustion = config.on_exhaustion;
  out.slo = config.slo;
  out.host_blocks = plan.num_host_blocks;
  out.end_of_generation = std::move(end_of_generation);
  return out;
}

}  // namespace llmrt
