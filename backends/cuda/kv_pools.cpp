#include "backends/cuda/kv_pools.h"

#include "backends/cuda/check.h"
#include "core/base/check.h"
#include "core/base/checked_math.h"

namespace llmrt::cuda {
namespace {

constexpr uint64_t kPoolAlignment = 256;

uint64_t layer_bytes(const KvGroup& group, uint32_t num_blocks) {
  return round_up(num_blocks * group.data_bytes_block_layer(), kPoolAlignment);
}
uint64_t scales_bytes(const KvGroup& group, uint32_t num_blocks) {
  return round_up(num_blocks * group.scale_bytes_block_layer() * group.num_layers, kPoolAlignment);
}
uint64_t pool_bytes(const KvGroup& group, uint32_t num_blocks) {
  return layer_bytes(group, num_blocks) * group.num_layers + scales_bytes(group, num_blocks);
}

// A pool of so many blocks in the memory at *at, which moves behind it: the data of all layers, then their scales.
KvMemory lay_out(const KvGroup& group, uint32_t num_blocks, std::byte** at) {
  KvMemory memory;
  memory.num_blocks = num_blocks;
  memory.layer_bytes = layer_bytes(group, num_blocks);
  memory.layer_scales = num_blocks * group.scale_bytes_block_layer() / 4;
  memory.data = *at;
  if (kv_has_scales(group.dtype)) memory.scales = reinterpret_cast<float*>(*at + memory.layer_bytes * group.num_layers);
  *at += pool_bytes(group, num_blocks);
  return memory;
}

}  // namespace

void KvPools::drop() {
  pools_.clear();
  groups_.clear();
  device_.reset();
  host_.reset();
}

Status KvPools::create(std::span<const KvGroup> groups, MemoryBook* book, cudaStream_t stream) {
  uint64_t device_bytes = 0, host_bytes = 0;
  for (const KvGroup& group : groups) {
    device_bytes += pool_bytes(group, group.num_blocks);
    host_bytes += pool_bytes(group, group.num_host_blocks);
  }
  Result<DeviceBuffer> device = DeviceBuffer::create(book, MemoryKind::kKv, device_bytes, "create_kv_pools");
  if (!device) return device.error();
  device_ = *std::move(device);
  CUDA_TRY(cudaMemsetAsync(device_.data(), 0, device_.bytes(), stream), "create_kv_pools");
  if (host_bytes > 0) {
    Result<PinnedBuffer> host = PinnedBuffer::create(host_bytes, "create_kv_pools: host pool");
    if (!host) return host.error();
    host_ = *std::move(host);
  }
  CUDA_TRY(cudaStreamSynchronize(stream), "create_kv_pools");
  std::byte *device_at = device_.data(), *host_at = host_.data();
  for (const KvGroup& group : groups)
    pools_.push_back(
        {group, lay_out(group, group.num_blocks, &device_at), lay_out(group, group.num_host_blocks, &host_at)});
  groups_.assign(groups.begin(), groups.end());
  return {};
}

Status KvPools::copy(uint32_t kv_group, uint32_t layer, uint32_t block, size_t num_bytes,
                     const std::function<cudaError_t(std::byte*, size_t, size_t)>& copy) const {
  LLMRT_CHECK(kv_group < pools_.size(), "kv group");
  const KvPool& pool = pools_[kv_group];
  const bool on_host = block >= pool.group.num_blocks;
  const KvMemory& memory = on_host ? pool.host : pool.device;
  if (on_host) block -= pool.group.num_blocks;
  LLMRT_CHECK(layer < pool.group.num_layers && block < memory.num_blocks, "kv layer and block");
  const uint64_t data = pool.group.data_bytes_block_layer(), scales = pool.group.scale_bytes_block_layer();
  LLMRT_CHECK(num_bytes == data + scales, "bytes of a kv block");
  CUDA_TRY(copy(memory.data + layer * memory.layer_bytes + block * data, 0, data), "kv block");
  if (scales)
    CUDA_TRY(
        copy(reinterpret_cast<std::byte*>(memory.scales + layer * memory.layer_scales) + block * scales, data, scales),
        "kv block");
  return {};
}

std::vector<std::span<std::byte>> KvPools::host_block(uint32_t kv_group, uint32_t block) const {
  LLMRT_CHECK(kv_group < pools_.size() && block < pools_[kv_group].host.num_blocks, "host block");
  const auto& [group, device, host] = pools_[kv_group];
  const uint64_t data = group.data_bytes_block_layer(), scales = group.scale_bytes_block_layer();
  std::vector<std::span<std::byte>> parts;
  for (uint32_t layer = 0; layer < group.num_layers; ++layer) {
    parts.push_back({host.data + layer * host.layer_bytes + block * data, data});
    if (scales == 0) continue;
    auto* plane = reinterpret_cast<std::byte*>(host.scales + layer * host.layer_scales);
    parts.push_back({plane + block * scales, scales});
  }
  return parts;
}

}  // namespace llmrt::cuda
