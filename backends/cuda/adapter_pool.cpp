#include "backends/cuda/adapter_pool.h"

#include <algorithm>
#include <cstring>

#include "backends/cuda/check.h"
#include "core/base/check.h"

namespace llmrt::cuda {

AdapterPool::~AdapterPool() {
  for (const Staging& staging : staging_)
    if (staging.copied) cudaEventDestroy(staging.copied);
}

void AdapterPool::drop() {
  memory_.reset();
  bytes_ = 0;
  for (Staging& staging : staging_) staging.buffer.reset();
}

Status AdapterPool::create(const AdapterPoolConfig& config, size_t num_groups, MemoryBook* book, cudaStream_t stream) {
  const uint64_t table_bytes = adapter_table_bytes(config.slots_max, num_groups);
  if (config.slots_max > kAdapterSlotsMax || config.bytes < table_bytes)
    return make_error(ErrorCode::kInvalidArgument,
                      "create_adapter_pool: expected at most {} slots and at least {} bytes, found {} and {}",
                      kAdapterSlotsMax, table_bytes, config.slots_max, config.bytes);
  if (Status status = allocate(config, book); !status) {
    drop();
    return status;
  }
  CUDA_TRY(cudaMemsetAsync(memory_.data(), 0, table_bytes, stream), "create_adapter_pool");
  return {};
}

Status AdapterPool::allocate(const AdapterPoolConfig& config, MemoryBook* book) {
  Result<DeviceBuffer> memory = DeviceBuffer::create(book, MemoryKind::kAdapters, config.bytes, "create_adapter_pool");
  if (!memory) return memory.error();
  memory_ = *std::move(memory);
  bytes_ = config.bytes;
  for (Staging& staging : staging_) {
    Result<PinnedBuffer> buffer =
        PinnedBuffer::create(std::min<uint64_t>(kStagingBytes, config.bytes), "create_adapter_pool");
    if (!buffer) return buffer.error();
    staging.buffer = *std::move(buffer);
    staging.used = 0;
    if (!staging.copied)
      CUDA_TRY(cudaEventCreateWithFlags(&staging.copied, cudaEventDisableTiming), "create_adapter_pool: event");
  }
  current_ = 0;
  return {};
}

Status AdapterPool::write(uint64_t offset, std::span<const std::byte> bytes, cudaStream_t stream) {
  LLMRT_CHECK(offset <= bytes_ && bytes.size() <= bytes_ - offset, "a range of the pool of adapters");
  while (!bytes.empty()) {
    if (staging_[current_].used == staging_[current_].buffer.bytes()) {
      current_ = (current_ + 1) % kNumStaging;
      CUDA_TRY(cudaEventSynchronize(staging_[current_].copied), "write_adapter_pool");
      staging_[current_].used = 0;
    }
    Staging& staging = staging_[current_];
    const uint64_t size = std::min<uint64_t>(bytes.size(), staging.buffer.bytes() - staging.used);
    std::byte* from = staging.buffer.data() + staging.used;
    std::memcpy(from, bytes.data(), size);
    CUDA_TRY(cudaMemcpyAsync(memory_.data() + offset, from, size, cudaMemcpyHostToDevice, stream),
             "write_adapter_pool");
    CUDA_TRY(cudaEventRecord(staging.copied, stream), "write_adapter_pool: event");
    staging.used += size;
    offset += size;
    bytes = bytes.subspan(size);
  }
  return {};
}

}  // namespace llmrt::cuda
