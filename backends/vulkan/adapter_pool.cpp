#include "backends/vulkan/adapter_pool.h"

#include <algorithm>
#include <cstring>

#include "backends/vulkan/recorder.h"
#include "core/base/check.h"

namespace llmrt::vulkan {

Result<std::unique_ptr<AdapterPool>> AdapterPool::create(const Device& device, MemoryBook* book, Transfer* transfer,
                                                         const AdapterPoolConfig& config, size_t num_groups,
                                                         View* pool_view) {
  const uint64_t table_bytes = adapter_table_bytes(config.slots_max, num_groups);
  if (config.slots_max > kAdapterSlotsMax || config.bytes < table_bytes)
    return make_error(ErrorCode::kInvalidArgument,
                      "vulkan: pool of adapters: expected at most {} slots and at least {} bytes, found {} and {}",
                      kAdapterSlotsMax, table_bytes, config.slots_max, config.bytes);
  std::unique_ptr<AdapterPool> pool(new AdapterPool(device));
  const uint64_t sizes[] = {config.bytes};
  auto memory = RangeSet::create(device, book, MemoryKind::kAdapters, sizes);
  if (!memory) return memory.error();
  pool->memory_ = std::move(*memory);
  auto queue = Queue::create(device);
  if (!queue) return queue.error();
  pool->queue_ = std::move(*queue);
  for (Staging& staging : pool->staging_) {
    auto commands = pool->queue_->allocate();
    if (!commands) return commands.error();
    staging.commands = *commands;
    auto buffer = Buffer::create(device, book, MemoryKind::kOther, Buffer::Where::kHostWrite,
                                 std::min<uint64_t>(kStagingBytes, config.bytes));
    if (!buffer) return buffer.error();
    staging.buffer = std::move(*buffer);
  }
  if (table_bytes > 0)
    if (Status status = transfer->zero(pool->memory_[0].part(0, table_bytes)); !status) return status.error();
  *pool_view = pool->memory_[0];
  return pool;
}

// Waits for its last copies, then records behind everything that was submitted.
Status AdapterPool::begin(Staging* staging) {
  if (Status status = queue_->wait(staging->submitted); !status) return status;
  return queue_->begin(staging->commands, /*once=*/true);
}

Status AdapterPool::write(uint64_t offset, std::span<const std::byte> bytes) {
  const View& pool = memory_[0];
  LLMRT_CHECK(offset <= pool.bytes && bytes.size() <= pool.bytes - offset, "a range of the pool of adapters");
  while (!bytes.empty()) {
    if (staging_[current_].used == staging_[current_].buffer.bytes())
      if (Status status = flush(); !status) return status;
    Staging& staging = staging_[current_];
    if (staging.used == 0)
      if (Status status = begin(&staging); !status) return status;
    const uint64_t size = std::min<uint64_t>(bytes.size(), staging.buffer.bytes() - staging.used);
    std::memcpy(staging.buffer.mapped() + staging.used, bytes.data(), size);
    // Against steps before, and against earlier bytes of the same place.
    record_full_barrier(device_, staging.commands);
    const VkBufferCopy region{staging.used, pool.offset + offset, size};
    device_.api().CmdCopyBuffer(staging.commands, staging.buffer.handle(), pool.buffer->handle(), 1, &region);
    staging.used += size;
    offset += size;
    bytes = bytes.subspan(size);
  }
  return {};
}

Status AdapterPool::flush() {
  Staging& staging = staging_[current_];
  if (staging.used == 0) return {};
  record_full_barrier(device_, staging.commands);
  if (Status status = queue_->end(staging.commands); !status) return status;
  if (Status status = queue_->submit({&staging.commands, 1}, submissions_ + 1); !status) return status;
  staging.submitted = ++submissions_;
  staging.used = 0;
  current_ = (current_ + 1) % kNumStaging;
  return {};
}

}  // namespace llmrt::vulkan
