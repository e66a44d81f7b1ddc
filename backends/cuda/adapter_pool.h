// The pool of adapters: its memory, and writes to it in the order of the stream, through pinned staging buffers.
#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "backends/cuda/memory.h"
#include "core/backend/backend.h"

namespace llmrt::cuda {

class AdapterPool {
 public:
  static constexpr uint64_t kStagingBytes = 4 << 20;  // of a buffer
  static constexpr uint32_t kNumStaging = 4;

  AdapterPool() = default;
  ~AdapterPool();
  AdapterPool(const AdapterPool&) = delete;
  AdapterPool& operator=(const AdapterPool&) = delete;

  // The stream is idle. num_groups: of the weights. The table is zero.
  Status create(const AdapterPoolConfig& config, size_t num_groups, MemoryBook* book, cudaStream_t stream);
  void drop();
  // Copies the bytes; waits only where all staging buffers are full and the device has not copied the oldest yet.
  Status write(uint64_t offset, std::span<const std::byte> bytes, cudaStream_t stream);

  const std::byte* data() const { return memory_.data(); }  // null: there is none

 private:
  struct Staging {
    PinnedBuffer buffer;
    cudaEvent_t copied = nullptr;  // behind the copies of all that it holds
    uint64_t used = 0;
  };
  Status allocate(const AdapterPoolConfig& config, MemoryBook* book);

  DeviceBuffer memory_;
  uint64_t bytes_ = 0;
  Staging staging_[kNumStaging];
  uint32_t current_ = 0;
};

}  // namespace llmrt::cuda
