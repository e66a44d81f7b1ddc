#include "backends/vulkan/adapter_pool.h"

#include <algorithm>
#include <cstring>

#include "backends/vulkan/check.h"
#include "backends/vulkan/recorder.h"
#include "core/base/check.h"

namespace llmrt::vulkan {

Result<std::unique_ptr<AdapterPool>> AdapterPool::create(const Device& device, MemoryBook* book, Transfer* transfer,
                                                         const AdapterPoolConfig& config, size_t num_groups,
                                                         View* pool_view) {
  const uint64_t table_bytes = uint64_t{config.slots_max} * num_groups * sizeof(AdapterEntry);
  if (config.slots_max > kAdapterSlotsMax || config.bytes < table_bytes)
    return make_error(ErrorCode::kInvalidArgument,
                      "vulkan: pool of adapters: expected at most {} slots and at least {} bytes, found {} and {}",
                      kAdapterSlotsMax, table_bytes, config.slots_max, config.bytes);
  std::unique_ptr<AdapterPool> pool(new AdapterPool(device));
  const uint64_t sizes[] = {config.bytes};
  auto memory = RangeSet::create(device, book, MemoryKind::kAdapters, sizes);
  if (!memory) return memory.error();
  pool->memory_ = std::move(*memory);
  if (Status status = pool->create_commands(); !status) return status.error();
  for (Staging& staging : pool->staging_) {
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

Status AdapterPool::create_commands() {
  const DeviceApi& api = device_.api();
  VkCommandPoolCreateInfo info{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  info.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
  info.queueFamilyIndex = device_.queue_family();
  VK_TRY(api.CreateCommandPool(device_.handle(), &info, nullptr, &commands_), "command pool");
  for (Staging& staging : staging_) {
    VkCommandBufferAllocateInfo allocate{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
    allocate.commandPool = commands_;
    allocate.commandBufferCount = 1;
    VK_TRY(api.AllocateCommandBuffers(device_.handle(), &allocate, &staging.commands), "command buffer");
  }
  VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  const VkSemaphoreCreateInfo semaphore{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
  VK_TRY(api.CreateSemaphore(device_.handle(), &semaphore, nullptr, &timeline_), "semaphore");
  return {};
}

AdapterPool::~AdapterPool() {
  device_.api().DestroySemaphore(device_.handle(), timeline_, nullptr);
  device_.api().DestroyCommandPool(device_.handle(), commands_, nullptr);
}

// Waits for its last copies, then records behind everything that was submitted.
Status AdapterPool::begin(Staging* staging) {
  VkSemaphoreWaitInfo wait{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
  wait.semaphoreCount = 1;
  wait.pSemaphores = &timeline_;
  wait.pValues = &staging->submitted;
  VK_TRY(device_.api().WaitSemaphores(device_.handle(), &wait, UINT64_MAX), "vkWaitSemaphores");
  VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  VK_TRY(device_.api().BeginCommandBuffer(staging->commands, &begin), "vkBeginCommandBuffer");
  return {};
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
  VK_TRY(device_.api().EndCommandBuffer(staging.commands), "vkEndCommandBuffer");
  VkCommandBufferSubmitInfo commands{VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO};
  commands.commandBuffer = staging.commands;
  VkSemaphoreSubmitInfo signal{VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO};
  signal.semaphore = timeline_;
  signal.value = submissions_ + 1;
  signal.stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
  VkSubmitInfo2 submit{VK_STRUCTURE_TYPE_SUBMIT_INFO_2};
  submit.commandBufferInfoCount = 1;
  submit.pCommandBufferInfos = &commands;
  submit.signalSemaphoreInfoCount = 1;
  submit.pSignalSemaphoreInfos = &signal;
  VK_TRY(device_.api().QueueSubmit2(device_.queue(), 1, &submit, VK_NULL_HANDLE), "copy adapters");
  staging.submitted = ++submissions_;
  staging.used = 0;
  current_ = (current_ + 1) % kNumStaging;
  return {};
}

}  // namespace llmrt::vulkan
