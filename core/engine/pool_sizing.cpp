#include "core/engine/pool_sizing.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/base/checked_math.h"
#include "core/model/architectures.h"
#include "core/ops/step_inputs.h"

namespace llmrt {
namespace {

constexpr double kCpuShare = 0.25;        // of what is free: the host has other things to do
constexpr uint64_t kPenaltyPart = 8;      // of what the weights leave, for token counts by default
constexpr uint64_t kPenaltyRowsMin = 16;  // but so many rows have them
// A processor's pool unless --kv-tokens says else. Clearing it takes 2 s a GiB before the first token, and a processor
// is too slow for the number of sequences that a larger one could hold.
constexpr uint64_t kCpuPoolBytes = 256ull << 20;
// Room for expanded latents. With less of it heads are expanded in more parts, or long prompts not at all.
constexpr uint64_t kExpandedPart = 16, kCpuExpandedBytesMax = 64ull << 20;
constexpr double kReserveShare = 0.01;  // for graphs and recordings made later
constexpr uint64_t kReserveBytesMax = 1ull << 30;

std::string mib(uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

uint64_t reserve_of(uint64_t budget_bytes) {
  return std::min<uint64_t>(kReserveBytesMax, static_cast<uint64_t>(kReserveShare * static_cast<double>(budget_bytes)));
}

// Memory that others use. On shared memory the budget is already a share of what is free.
uint64_t used_before(const Caps& caps, const MemoryReport& before) {
  return caps.is_cpu || caps.unified_memory ? 0 : before.total_bytes - before.free_bytes;
}

uint64_t whole_budget(const EngineConfig& config, const Caps& caps, const MemoryReport& before) {
  if (caps.is_cpu || caps.unified_memory)
    return static_cast<uint64_t>((config.asked.memory_utilization ? config.memory_utilization : kCpuShare) *
                                 static_cast<double>(before.free_bytes));
  return static_cast<uint64_t>(config.memory_utilization * static_cast<double>(before.total_bytes));
}

uint64_t budget_of(const EngineConfig& config, const Caps& caps, const MemoryReport& before) {
  const uint64_t budget = whole_budget(config, caps, before);
  return config.memory_bytes_max == 0 ? budget : std::min(budget, used_before(caps, before) + config.memory_bytes_max);
}

uint64_t blocks_limit(const EngineConfig& config, const Caps& caps, const PoolShapes& shapes) {
  const uint32_t block_tokens = shapes.first().block_tokens;
  if (config.kv_tokens) return ceil_div<uint64_t>(config.kv_tokens, block_tokens);
  const uint64_t blocks_each = ceil_div<uint64_t>(config.context_max, block_tokens);
  const uint64_t blocks = config.sequences_max * blocks_each;
  // At least one sequence of full length.
  return caps.is_cpu ? std::min(blocks, std::max(blocks_each, shapes.blocks_in(kCpuPoolBytes))) : blocks;
}

// What was asked for and is not had.
Status check_asked(const EngineConfig& config, const PoolShapes& shapes, const MemoryPlan& plan) {
  const uint64_t pool_tokens = uint64_t{plan.num_blocks} * plan.block_tokens;
  if (config.asked.kv_tokens && config.kv_tokens > 0 && plan.num_blocks < plan.blocks_by_limit)
    return make_error(ErrorCode::kInvalidArgument,
                      "KV tokens: {} were asked for, found room for {} (limited by {}): {} a block of {} tokens",
                      config.kv_tokens, pool_tokens, plan.limited_by, mib(plan.block_bytes), plan.block_tokens);
  if (config.asked.context && config.kv_tokens == 0 && config.context_max > pool_tokens)
    return make_error(ErrorCode::kInvalidArgument,
                      "context: {} tokens were asked for, found room for {} in the KV pool (limited by {}): {} a block "
                      "of {} tokens",
                      config.context_max, pool_tokens, plan.limited_by, mib(plan.block_bytes), plan.block_tokens);
  const uint64_t host_blocks = shapes.blocks_in(config.kv_host_bytes);
  if (config.asked.kv_host && config.kv_host_bytes > 0 && host_blocks == 0)
    return make_error(ErrorCode::kInvalidArgument, "KV host memory: expected at least one block of {}, found {}",
                      mib(plan.block_bytes), mib(config.kv_host_bytes));
  if (config.asked.kv_host && plan.num_host_blocks < host_blocks)
    return make_error(ErrorCode::kInvalidArgument,
                      "KV host memory: {} were asked for, the device addresses {} of a host pool",
                      mib(config.kv_host_bytes), mib(plan.host_pool_bytes));
  return {};
}

}  // namespace

uint64_t memory_for_engines(const EngineConfig& config, const Caps& caps, const MemoryReport& before) {
  const uint64_t budget = whole_budget(config, caps, before), used = used_before(caps, before);
  return budget - std::min(budget, used);
}

Status check_kv_dtype(KvDType dtype, const Model& model, const Caps& caps) {
  if (std::find(caps.kv_dtypes.begin(), caps.kv_dtypes.end(), dtype) == caps.kv_dtypes.end())
    return make_error(ErrorCode::kUnsupported, "KV cache in {}: {} does not have it", kv_dtype_name(dtype),
                      caps.device_id);
  for (const CacheGroup& group : cache_groups(model.config.layers))
    if (kv_has_block_scales(dtype) && group.head_dim % kKvScaleBlock != 0)
      return make_error(ErrorCode::kUnsupported, "KV cache in {}: expected heads of a multiple of {} numbers, found {}",
                        kv_dtype_name(dtype), kKvScaleBlock, group.head_dim);
  if (dtype == KvDType::kF8Tensor && !model.has_kv_scales)
    return make_error(ErrorCode::kUnsupported,
                      "KV cache in fp8-tensor: expected a model with scales ({}), found none: fp8 measures its own",
                      tensor_names::of_layer(0, tensor_names::kKCacheScale));
  return {};
}

uint64_t f16_copies_bound(const EngineConfig& config, const Caps& caps, const PoolShapes& shapes,
                          const MemoryReport& before, const MemoryReport& loaded, const BesideMemory& beside) {
  // Not measured yet.
  constexpr double kWorkspaceShare = 0.05;
  constexpr double kWorkspaceBytes = 512 << 20;
  // Batch-invariant steps have kernels of their own.
  if (caps.is_cpu || caps.unified_memory || config.f16_copies_share == 0 || config.batch_invariant ||
      caps.f16_copies_rows_min == 0 || config.step_tokens_max < caps.f16_copies_rows_min)
    return 0;
  const uint64_t budget = budget_of(config, caps, before);
  const uint64_t taken = before.total_bytes - before.free_bytes + loaded.weight_bytes - loaded.f16_copy_bytes;
  const double room = budget > taken ? static_cast<double>(budget - taken) : 0;
  const uint64_t blocks = blocks_limit(config, caps, shapes);
  const double pool = static_cast<double>(shapes.bytes_of(blocks) + blocks * beside.block_bytes);
  const double unused = (1 - kWorkspaceShare) * room - kWorkspaceBytes - static_cast<double>(reserve_of(budget)) - pool;
  return static_cast<uint64_t>(std::max(config.f16_copies_share * room, unused));
}

Result<uint32_t> penalty_rows_of(const EngineConfig& config, const Caps& caps, uint32_t vocab_size,
                                 const MemoryReport& before, const MemoryReport& loaded) {
  const uint64_t row_bytes = uint64_t{vocab_size} * 4;
  const uint64_t by_range =
      caps.range_bytes_max > 0 ? caps.range_bytes_max / row_bytes : std::numeric_limits<uint64_t>::max();
  const uint64_t budget = budget_of(config, caps, before);
  const uint64_t taken = used_before(caps, before) + loaded.weight_bytes - loaded.f16_copy_bytes;
  const uint64_t room = budget - std::min(budget, taken);
  const uint64_t sequences = config.sequences_max;
  if (config.penalty_rows_max == 0) {
    const uint64_t by_memory = std::max(kPenaltyRowsMin, room / kPenaltyPart / row_bytes);
    return static_cast<uint32_t>(std::max<uint64_t>(1, std::min({sequences, by_range, by_memory})));
  }
  // More rows than run would never be used.
  const uint64_t wanted = std::min<uint64_t>(config.penalty_rows_max, sequences);
  if (const uint64_t most = std::min(by_range, room / row_bytes); wanted > most)
    return make_error(ErrorCode::kInvalidArgument, "penalty rows: {} were asked for, found room for {}: {} each",
                      wanted, most, mib(row_bytes));
  return static_cast<uint32_t>(wanted);
}

KvGroup expanded_pool_of(const EngineConfig& config, const Caps& caps, const ModelConfig& model, uint64_t bytes) {
  const auto is_latent = [](const LayerSpec& layer) { return layer.attention == AttentionKind::kLatent; };
  const auto first = std::ranges::find_if(model.layers, is_latent);
  const bool has_same_heads = std::ranges::all_of(model.layers, [&](const LayerSpec& layer) {
    return !is_latent(layer) || (layer.latent == first->latent && layer.num_heads == first->num_heads &&
                                 layer.cache_group == first->cache_group);
  });
  const bool has_dtype = std::ranges::find(caps.kv_dtypes, KvDType::kF16) != caps.kv_dtypes.end();
  if (!config.expands_latents || first == model.layers.end() || !has_same_heads || !has_dtype ||
      !first->latent.can_expand() || first->latent.key_dim() > caps.head_dim_max ||
      cache_groups(model.layers).size() == kKvGroupsMax)
    return {};
  KvGroup group{.num_layers = 1,
                .num_kv_heads = 1,
                .head_dim = first->latent.key_dim(),
                .block_tokens = kExpandItemKeys,
                .is_expanded = true};
  const uint64_t wanted = ceil_div<uint64_t>(config.context_max, kExpandItemKeys) * first->num_heads;
  if (caps.range_bytes_max > 0) bytes = std::min(bytes, caps.range_bytes_max);
  group.num_blocks = static_cast<uint32_t>(std::min<uint64_t>(wanted, bytes / group.bytes_block()));
  return group;
}

KvGroup expanded_pool(const EngineConfig& config, const Caps& caps, const ModelConfig& model,
                      const MemoryReport& before, const MemoryReport& loaded) {
  const uint64_t budget = budget_of(config, caps, before);
  const uint64_t taken = used_before(caps, before) + loaded.weight_bytes - loaded.f16_copy_bytes;
  const uint64_t room = budget - std::min(budget, taken);
  const uint64_t most = caps.is_cpu ? kCpuExpandedBytesMax : kExpandedBytesMax;
  return expanded_pool_of(config, caps, model, std::min(most, room / kExpandedPart));
}

uint32_t host_blocks_of(const EngineConfig& config, const Caps& caps, const PoolShapes& shapes) {
  return static_cast<uint32_t>(std::min(shapes.blocks_in(config.kv_host_bytes), shapes.blocks_by_range(caps)));
}

uint64_t pool_tokens_bound(const EngineConfig& config, const Caps& caps, const PoolShapes& shapes) {
  return std::min(blocks_limit(config, caps, shapes), shapes.blocks_in(caps.memory_bytes) + 1) *
         shapes.first().block_tokens;
}

Result<MemoryPlan> size_pools(const EngineConfig& config, const Caps& caps, const PoolShapes& shapes,
                              const MemoryReport& before, const MemoryReport& after, const BesideMemory& beside,
                              const KvGroup& expanded) {
  MemoryPlan plan;
  plan.expanded = expanded;
  plan.device_bytes = before.total_bytes;
  plan.budget_bytes = budget_of(config, caps, before);
  plan.used_before_bytes = used_before(caps, before);
  plan.weight_bytes = after.weight_bytes;
  plan.f16_copy_bytes = after.f16_copy_bytes;
  plan.workspace_bytes = after.peak_bytes - std::min(after.peak_bytes, after.weight_bytes + after.kv_bytes);
  plan.reserve_bytes = reserve_of(plan.budget_bytes);
  plan.sequences = config.sequences_max;
  plan.block_bytes = shapes.bytes_block();
  plan.block_tokens = shapes.first().block_tokens;
  const uint64_t taken =
      plan.used_before_bytes + plan.weight_bytes + plan.workspace_bytes + plan.reserve_bytes + plan.expanded_bytes();
  plan.blocks_by_memory =
      plan.budget_bytes > taken ? shapes.blocks_in(plan.budget_bytes - taken, beside.block_bytes) : 0;
  plan.blocks_by_limit = blocks_limit(config, caps, shapes);
  // 32-bit token slots on the device.
  const uint64_t addressable = std::numeric_limits<int32_t>::max() / plan.block_tokens;
  const uint64_t by_range = shapes.blocks_by_range(caps);
  const uint64_t blocks = std::min({plan.blocks_by_memory, plan.blocks_by_limit, addressable, by_range});
  plan.limited_by = blocks < plan.blocks_by_limit
                        ? blocks < plan.blocks_by_memory ? "what the device addresses" : "memory"
                    : config.kv_tokens ? "--kv-tokens"
                    : caps.is_cpu      ? "a processor's default"
                                       : "sequences x context";
  plan.num_blocks = static_cast<uint32_t>(blocks);
  plan.num_host_blocks = host_blocks_of(config, caps, shapes);
  plan.pool_bytes = shapes.bytes_of(blocks);
  plan.host_pool_bytes = shapes.bytes_of(plan.num_host_blocks);
  plan.pools = shapes.books(plan.num_blocks, plan.num_host_blocks);
  for (const KvGroup& group : shapes.groups(plan.num_blocks, plan.num_host_blocks))
    plan.pool_block_bytes.push_back(group.bytes_block());
  if (blocks == 0)
    return make_error(
        ErrorCode::kOutOfMemory,
        "no room for a KV cache: budget {} less used {}, weights {}, workspace {}, reserve {} leaves less "
        "than one block of {}",
        mib(plan.budget_bytes), mib(plan.used_before_bytes), mib(plan.weight_bytes), mib(plan.workspace_bytes),
        mib(plan.reserve_bytes), mib(plan.block_bytes));
  if (Status status = check_asked(config, shapes, plan); !status) return status.error();
  return plan;
}

std::string print(const MemoryPlan& plan, uint32_t context_tokens, uint32_t num_sequences) {
  std::string text;
  const auto line = [&text](std::string_view what, const std::string& value) {
    text += fmt::format("{:<28}{:>16}\n", what, value);
  };
  line("device", mib(plan.device_bytes));
  line("budget", mib(plan.budget_bytes));
  line("- used before", mib(plan.used_before_bytes));
  line("- weights", mib(plan.weight_bytes - plan.f16_copy_bytes));
  if (plan.f16_copy_bytes > 0) line("- weights' copies in f16", mib(plan.f16_copy_bytes));
  line("- workspace (measured)", mib(plan.workspace_bytes));
  if (plan.penalty_rows > 0)
    line(fmt::format("  penalty rows, {} of {}", plan.penalty_rows, plan.sequences),
         mib(plan.penalty_rows * plan.penalty_row_bytes));
  if (plan.adapter_bytes > 0) line("  adapters", mib(plan.adapter_bytes));
  if (plan.expanded.num_blocks > 0) line("- expanded latents", mib(plan.expanded_bytes()));
  if (plan.draft_fixed_bytes > 0) line("- draft model", mib(plan.draft_fixed_bytes));
  line("- reserve", mib(plan.reserve_bytes));
  line("KV block", fmt::format("{} tokens, {}", plan.block_tokens, mib(plan.block_bytes)));
  if (plan.draft_block_bytes > 0) line("  and the draft model's", mib(plan.draft_block_bytes));
  line("blocks by memory", fmt::format("{}", plan.blocks_by_memory));
  line("blocks by limit", fmt::format("{}", plan.blocks_by_limit));
  line("KV pool", fmt::format("{} blocks, {}", plan.num_blocks, mib(plan.pool_bytes)));
  if (plan.draft_pool_bytes > 0) line("  and the draft model's", mib(plan.draft_pool_bytes));
  for (size_t g = 1; g < plan.pools.size(); ++g) {
    if (plan.pools[g].kind == CacheKind::kState) {
      const uint64_t records = plan.pools[g].num_blocks, live = std::min<uint64_t>(records, plan.sequences);
      line("  states", fmt::format("{} records, {}", records, mib(records * plan.pool_block_bytes[g])));
      line("    of running sequences", fmt::format("{}", live));
      line("    checkpoints beside them", fmt::format("{}", records - live));
      continue;
    }
    line(plan.pools[g].window > 0 ? fmt::format("  of {} in a window", plan.pools[g].window) : "  of further layers",
         fmt::format("{} blocks", plan.pools[g].num_blocks));
  }
  line("KV tokens", fmt::format("{}", uint64_t{plan.num_blocks} * plan.block_tokens));
  line("limited by", plan.limited_by);
  if (plan.num_host_blocks > 0)
    line("host tier", fmt::format("{} blocks, {}{}", plan.num_host_blocks, mib(plan.host_pool_bytes),
                                  plan.host_is_for_disk ? ", for the disk tier" : ""));
  if (plan.disk_bytes > 0) line("disk tier", fmt::format("{}, {}", mib(plan.disk_bytes), plan.disk_folder));
  if (context_tokens == 0) return text;
  const uint64_t blocks_each = ceil_div(context_tokens, plan.block_tokens);
  uint64_t fit = plan.num_blocks / blocks_each;
  for (const KvPoolSize& pool : plan.pools)
    if (pool.kind == CacheKind::kState) fit = std::min<uint64_t>(fit, pool.num_blocks);
  const uint64_t slack = blocks_each * plan.block_tokens - context_tokens;
  line("fragmentation a sequence",
       fmt::format("{} tokens, {}", slack, mib(slack * plan.block_bytes / plan.block_tokens)));
  line("sequences that fit", fmt::format("{} of {} tokens", fit, context_tokens));
  if (num_sequences)
    line("wanted", fmt::format("{} sequences: {}", num_sequences, fit >= num_sequences ? "fits" : "does not fit"));
  return text;
}

}  // namespace llmrt
