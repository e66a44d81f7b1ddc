#include "core/engine/disk_setup.h"

#include <algorithm>
#include <filesystem>

#include "core/base/checked_math.h"
#include "core/disk/block_exchange.h"
#include "core/engine/cache_identity.h"
#include "core/engine/disk_source.h"
#include "core/engine/pool_shapes.h"

namespace llmrt {
namespace {

// Of a disk; and of hand-over, where several sequences are on their way at once.
constexpr uint64_t kStagingBytesMax = 1ull << 30, kHandOverBytesMax = 4ull << 30;
constexpr uint64_t kHandOverSequences = 4;

}  // namespace

Status resolve_disk(const Model& model, EngineConfig* config) {
  if (config->disk.folder.empty() && !config->exchange) return {};
  const char* what = config->exchange ? "hand-over" : "KV disk";
  if (config->prefix_cache == PrefixCacheKind::kOff)
    return make_error(ErrorCode::kInvalidArgument, "{}: expected a prefix cache, found none", what);
  if (config->exchange && !config->disk.folder.empty())
    return make_error(ErrorCode::kInvalidArgument, "hand-over: expected no KV disk, found {}", config->disk.folder);
  if (config->kv_host_bytes > 0) return {};
  const PoolShapes shapes(model.config, *config);
  const uint64_t whole = shapes.bytes_of(ceil_div(config->context_max, config->block_tokens));
  const uint64_t wanted =
      config->exchange ? std::min(kHandOverSequences * whole, kHandOverBytesMax) : std::min(whole, kStagingBytesMax);
  config->kv_host_bytes = std::max(wanted, shapes.bytes_of(1));
  return {};
}

Result<std::unique_ptr<DiskTier>> open_disk(const EngineConfig& config, const MemoryPlan& plan,
                                            std::span<const KvGroup> groups, const Digest& cache_identity,
                                            Backend* backend) {
  const bool is_on_disk = !config.disk.folder.empty() && config.disk.is_opened;
  if (!is_on_disk && !config.exchange) return std::unique_ptr<DiskTier>();
  const Digest identity = disk_identity(cache_identity, backend->caps(), groups);
  SegmentLimits limits{.identity = identity, .shapes = {}, .bytes_max = config.disk.bytes_max};
  const auto memory = [backend](uint32_t kv_group, BlockId block) { return backend->host_block(kv_group, block); };
  for (uint32_t g = 0; g < groups.size(); ++g) {
    RecordShape shape{.num_tokens = plan.block_tokens, .payload_bytes = 0};
    if (groups[g].num_host_blocks > 0) {
      for (const std::span<std::byte>& part : backend->host_block(g, 0)) shape.payload_bytes += part.size();
      if (shape.payload_bytes == 0)
        return make_error(ErrorCode::kUnsupported, "{}: {} does not say where its host memory lies",
                          is_on_disk ? "KV disk" : "hand-over", backend->caps().device_id);
    }
    limits.shapes.push_back(shape);
  }
  if (config.exchange) {
    auto tier = std::make_unique<DiskTier>(config.exchange->port(exchange_layout(cache_identity, groups)),
                                           limits.record_bytes_max(), /*is_lasting=*/false, memory);
    if (!config.disk.source) tier->start_thread();
    return tier;
  }
  if (limits.bytes_max < limits.least_bytes())
    return make_error(ErrorCode::kInvalidArgument, "KV disk: expected at least {} MiB, found {}",
                      ceil_div<uint64_t>(limits.least_bytes(), 1 << 20), limits.bytes_max >> 20);
  const std::string path = (std::filesystem::path(config.disk.folder) / to_hex(identity).substr(0, 32)).string();
  Result<std::unique_ptr<Folder>> folder =
      config.disk.source ? config.disk.source->open(path) : open_locked_folder(path);
  if (!folder) return Error{folder.error().code, "KV disk: " + folder.error().message};
  auto disk = std::make_unique<DiskTier>(*std::move(folder), std::move(limits), memory);
  if (!config.disk.source) disk->start_thread();
  return disk;
}

}  // namespace llmrt
