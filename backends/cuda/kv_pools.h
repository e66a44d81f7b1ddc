// The pools of KV blocks, in device memory and in pinned memory of the host.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <span>
#include <vector>

#include "backends/cuda/memory.h"
#include "backends/cuda/op_context.h"

namespace llmrt::cuda {

class KvPools {
 public:
  // One pool for each group, cleared. The old ones must be dropped. Errors: out_of_memory, with what was asked for.
  Status create(std::span<const KvGroup> groups, MemoryBook* book, cudaStream_t stream);
  void drop();

  const std::vector<KvPool>& pools() const { return pools_; }
  const std::vector<KvGroup>& groups() const { return groups_; }

  // Where a block of the host's pool lies (Backend::host_block).
  std::vector<std::span<std::byte>> host_block(uint32_t kv_group, uint32_t block) const;

  // Calls copy(memory, begin, count) for the data of a block and for its scales: `count` bytes at `begin` of what the
  // host has, `num_bytes` in all. The host pool's blocks follow the device's.
  Status copy(uint32_t kv_group, uint32_t layer, uint32_t block, size_t num_bytes,
              const std::function<cudaError_t(std::byte*, size_t, size_t)>& copy) const;

 private:
  DeviceBuffer device_;
  PinnedBuffer host_;
  std::vector<KvPool> pools_;
  std::vector<KvGroup> groups_;
};

}  // namespace llmrt::cuda
