#include "tools/llmrt_bench/ops/op_bench.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/engine/expert_counts.h"
#include "core/engine/pool_shapes.h"
#include "tools/llmrt_bench/ops/test_data.h"
#include "tools/llmrt_bench/record/stats.h"

namespace llmrt::bench {
namespace {

constexpr uint32_t kWarmUps = 2;
constexpr uint32_t kFirstBlocks = 8;  // written from the host; the device copies them to the others
constexpr uint32_t kCopiesStep = 128;

Status copy_blocks(std::vector<BlockCopy> copies, const SealedList& memory, Backend* backend) {
  ForwardInputs inputs;
  inputs.block_copies = std::move(copies);
  std::vector<uint32_t> words;
  pack(inputs, &words);
  Result<Ticket> ticket = backend->submit({.memory = &memory, .forward_inputs = words});
  if (!ticket) return ticket.error();
  Result<StepOutput> output = backend->wait(*ticket);
  return output ? Status{} : output.error();
}

Status fill_pool(uint32_t kv_group, const KvGroup& pool, const SealedList& memory, Backend* backend) {
  const uint32_t num_first = std::min(pool.num_blocks, kFirstBlocks);
  for (uint32_t layer = 0; layer < pool.num_layers; ++layer)
    for (uint32_t block = 0; block < num_first; ++block)
      if (Status status = backend->write_kv(kv_group, layer, block,
                                            random_block(pool, (kv_group << 16 | layer) * kFirstBlocks + block));
          !status)
        return status;
  std::vector<BlockCopy> copies;
  for (uint32_t block = num_first; block < pool.num_blocks; ++block) {
    copies.push_back({block % num_first, block, pool.block_tokens, kv_group});
    if (copies.size() < kCopiesStep && block + 1 < pool.num_blocks) continue;
    if (Status status = copy_blocks(std::exchange(copies, {}), memory, backend); !status) return status;
  }
  return {};
}

}  // namespace

Status fill_pools(std::span<const KvGroup> pools, const SealedList& memory, Backend* backend) {
  for (uint32_t g = 0; g < pools.size(); ++g)
    if (Status status = fill_pool(g, pools[g], memory, backend); !status) return status;
  return {};
}

namespace {

std::string cannot_run(const StepKind& kind, const BenchDevice& device) {
  const EngineConfig& config = device.warm.config;
  const uint32_t num_tokens = kind.shape.num_sequences * kind.shape.num_tokens;
  if (num_tokens > config.step_tokens_max)
    return fmt::format("{} tokens: steps there have at most {}", num_tokens, config.step_tokens_max);
  if (kind.shape.num_sequences > config.sample_rows_max)
    return fmt::format("{} sampled rows: steps there have at most {}", kind.shape.num_sequences,
                       config.sample_rows_max);
  if (kind.num_adapters > device.adapters.adapters.size())
    return fmt::format("{} adapters: the pool has {}", kind.num_adapters, device.adapters.adapters.size());
  if (const uint32_t num_blocks = device.pools.front().num_blocks; probe_blocks(kind.shape) > num_blocks)
    return fmt::format("{} KV blocks: each pool has {}", probe_blocks(kind.shape), num_blocks);
  return "";
}

// One device's part of a step.
struct Turn {
  BenchDevice& device;
  StepFigures& figures;
  StepAdapters adapters = {};
  LoweredStep step = {};
  std::vector<std::vector<double>> runs = {};  // ms by op
  ExpertCounts experts = {};

  Status begin(const StepKind& kind, uint32_t vocab_size) {
    for (uint32_t i = 0; i < kind.shape.num_sequences; ++i)
      if (Status status =
              apply_row_updates(probe_setup_plan(kind.shape, i, device.warm.memory_plan.pools), device.backend.get());
          !status)
        return status;
    IterationPlan plan = probe_plan(kind.shape, vocab_size);
    adapters = device.adapters.first(kind.num_adapters);
    adapters.give_to(&plan);
    for (PlanRow& row : plan.rows) row.batch_invariant = device.warm.config.batch_invariant;
    device.warm.lowering->lower(plan, &step);
    Result<ExpertCounts> counts =
        count_experts(step, kind.shape.num_sequences * kind.shape.num_tokens, device.backend.get());
    if (!counts) return counts.error();
    experts = *std::move(counts);
    return {};
  }

  Status run(bool counts) {
    Result<Ticket> ticket = device.backend->submit(step.submission());
    if (!ticket) return ticket.error();
    Result<StepOutput> output = device.backend->wait(*ticket);
    if (!output) return output.error();
    Result<std::vector<double>> op_ms = device.backend->profile(step.submission());
    if (!op_ms) return op_ms.error();
    if (!counts) return {};
    figures.step_ms.push_back(output->forward_ms + output->sample_ms);
    runs.push_back(*std::move(op_ms));
    return {};
  }

  void sum_up(const Model& model, const ProbeShape& shape) {
    std::vector<bool> joined;
    for (size_t op = 0; op < runs[0].size(); ++op)
      joined.push_back(std::ranges::all_of(runs, [op](const auto& run) { return run[op] == 0; }));
    const KvDType kv_dtype = device.pools.front().dtype;
    const ExpandedShape expanded =
        device.warm.config.batch_invariant ? ExpandedShape{} : device.warm.lowering->expanded_shape();
    CostSizes sizes = probe_sizes(shape, model.config, kv_dtype, expanded);
    sizes.adapters = adapters.sizes(sizes.num_tokens, model);
    CostSizes sample_sizes = sizes;
    sample_sizes.adapters = adapters.sizes(sizes.num_sampled, model);
    sizes.distinct_experts = experts.forward;
    sample_sizes.distinct_experts = experts.sample;
    if (step.forward) figures.experts = describe_experts(step.forward->list, experts.forward, sizes.num_tokens);
    for (Kernel& kernel : step_kernels(step, model, sizes, sample_sizes, kv_dtype, joined)) {
      KernelFigures kernel_figures{std::move(kernel), {}, 0, {}};
      kernel_figures.floor_us = floor_us(kernel_figures.kernel, device.limits);
      const std::vector<uint32_t>& ops = kernel_figures.kernel.op_idxs;
      for (const std::vector<double>& run : runs) {
        double sum_ms = 0;
        for (const uint32_t op : ops) sum_ms += run[op];
        kernel_figures.us.push_back(1e3 * sum_ms / static_cast<double>(ops.size()));
      }
      figures.kernels.push_back(std::move(kernel_figures));
    }
    std::ranges::sort(figures.kernels, std::greater(), &KernelFigures::lost_ms);
  }
};

}  // namespace

double KernelFigures::median_us() const {
  return median(us);
}

double KernelFigures::lost_ms() const {
  return 1e-3 * std::max(0.0, median_us() - floor_us) * static_cast<double>(kernel.op_idxs.size());
}

double StepFigures::sum_ms() const {
  double sum = 0;
  for (const KernelFigures& figures : kernels)
    sum += 1e-3 * figures.median_us() * static_cast<double>(figures.kernel.op_idxs.size());
  return sum;
}

double floor_us(const Kernel& kernel, const DeviceLimits& limits) {
  const double share = kernel.cost.bytes > 0 ? kernel.written_bytes / kernel.cost.bytes : 0;
  const Limit& bandwidth = share > 0.75 ? limits.write : share > 0.25 ? limits.copy : limits.read;
  return std::max(1e-3 * kernel.cost.bytes / bandwidth.best, 1e-6 * kernel.cost.flops / limits.matrix_tflop_s());
}

Result<BenchDevice> prepare_device(DeviceLimits limits, std::unique_ptr<Backend> backend,
                                   const std::shared_ptr<const Model>& model, EngineConfig config) {
  config.keeps_windows = true;
  Result<WarmEngine> warm = warm_up(config, model, {}, backend.get(), {});
  if (!warm) return warm.error();
  BenchDevice device{std::move(limits), std::move(backend), *std::move(warm), {}, {}};
  device.pools = PoolShapes(model->config, device.warm.config).groups(device.warm.memory_plan.num_blocks, 0);
  if (Status status = fill_pools(device.pools, device.warm.lowering->memory_list(), device.backend.get()); !status)
    return status.error();
  Result<StepAdapters> adapters = fill_adapter_pool(*model, device.warm, device.backend.get());
  if (!adapters) return adapters.error();
  device.adapters = *std::move(adapters);
  return device;
}

Result<std::vector<StepFigures>> bench_step(const std::shared_ptr<const Model>& model, const StepKind& kind,
                                            const BenchOptions& options, std::vector<BenchDevice>* devices,
                                            const std::function<void(const std::string&)>& tell) {
  std::vector<StepFigures> all(devices->size());
  std::vector<Turn> turns;
  for (size_t i = 0; i < devices->size(); ++i) {
    BenchDevice& device = (*devices)[i];
    all[i].device_id = device.limits.caps.device_id;
    all[i].missing = cannot_run(kind, device);
    if (all[i].missing.empty()) turns.push_back({device, all[i]});
  }
  for (Turn& turn : turns)
    if (Status status = turn.begin(kind, model->config.vocab_size); !status) return status.error();
  for (uint32_t run = 0; run < kWarmUps + options.runs; ++run)
    for (Turn& turn : turns) {
      tell(fmt::format("{}, {}: run {} of {}", kind.name, turn.figures.device_id, run + 1, kWarmUps + options.runs));
      if (Status status = turn.run(run >= kWarmUps); !status) return status.error();
    }
  for (Turn& turn : turns) {
    turn.sum_up(*model, kind.shape);
    const CheckedDevice checked{model, kind.shape, turn.device.pools, turn.device.backend.get(), &turn.adapters};
    for (KernelFigures& figures : turn.figures.kernels) {
      if (!options.check) {
        figures.check.what = "not asked for";
        continue;
      }
      tell(fmt::format("{}, {}: check of {}", kind.name, turn.figures.device_id, figures.kernel.name));
      Result<OpCheck> check = check_kernel(checked, turn.step, figures.kernel);
      if (!check && check.error().code == ErrorCode::kDeviceLost) return check.error();
      figures.check = check ? *std::move(check) : OpCheck{false, check.error().message};
    }
  }
  return all;
}

}  // namespace llmrt::bench
