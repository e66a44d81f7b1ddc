#include "backends/vulkan/queue.h"

#include <utility>
#include <vector>

#include "backends/vulkan/check.h"

namespace llmrt::vulkan {

Result<std::unique_ptr<Queue>> Queue::create(const Device& device) {
  const DeviceApi& api = device.api();
  std::unique_ptr<Queue> queue(new Queue(device));
  VkCommandPoolCreateInfo pool{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  pool.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
  pool.queueFamilyIndex = device.queue_family();
  VK_TRY(api.CreateCommandPool(device.handle(), &pool, nullptr, &queue->pool_), "command pool");
  VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  const VkSemaphoreCreateInfo semaphore{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
  VK_TRY(api.CreateSemaphore(device.handle(), &semaphore, nullptr, &queue->timeline_), "timeline semaphore");
  return queue;
}

Queue::~Queue() {
  const DeviceApi& api = device_.api();
  api.DestroySemaphore(device_.handle(), timeline_, nullptr);
  api.DestroyCommandPool(device_.handle(), pool_, nullptr);
}

Result<VkCommandBuffer> Queue::allocate() {
  VkCommandBufferAllocateInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
  info.commandPool = pool_;
  info.commandBufferCount = 1;
  VkCommandBuffer commands = VK_NULL_HANDLE;
  VK_TRY(device_.api().AllocateCommandBuffers(device_.handle(), &info, &commands), "command buffer");
  return commands;
}

void Queue::free(VkCommandBuffer commands) {
  device_.api().FreeCommandBuffers(device_.handle(), pool_, 1, &commands);
}

Status Queue::begin(VkCommandBuffer commands, bool once) {
  VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  begin.flags = once ? VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT : VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT;
  VK_TRY(device_.api().BeginCommandBuffer(commands, &begin), "vkBeginCommandBuffer");
  return {};
}

Status Queue::end(VkCommandBuffer commands) {
  VK_TRY(device_.api().EndCommandBuffer(commands), "vkEndCommandBuffer");
  return {};
}

Status Queue::submit(std::span<const VkCommandBuffer> commands, uint64_t value) {
  std::vector<VkCommandBufferSubmitInfo> infos;
  for (VkCommandBuffer buffer : commands) {
    infos.push_back({VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO});
    infos.back().commandBuffer = buffer;
  }
  VkSemaphoreSubmitInfo signal{VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO};
  signal.semaphore = timeline_;
  signal.value = value;
  signal.stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
  VkSubmitInfo2 submit{VK_STRUCTURE_TYPE_SUBMIT_INFO_2};
  submit.commandBufferInfoCount = static_cast<uint32_t>(infos.size());
  submit.pCommandBufferInfos = infos.data();
  submit.signalSemaphoreInfoCount = 1;
  submit.pSignalSemaphoreInfos = &signal;
  VK_TRY(device_.api().QueueSubmit2(device_.queue(), 1, &submit, VK_NULL_HANDLE), "vkQueueSubmit2");
  return {};
}

Status Queue::wait(uint64_t value) {
  VkSemaphoreWaitInfo wait{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
  wait.semaphoreCount = 1;
  wait.pSemaphores = &timeline_;
  wait.pValues = &value;
  VK_TRY(device_.api().WaitSemaphores(device_.handle(), &wait, UINT64_MAX), "vkWaitSemaphores");
  return {};
}

// ---- timestamps ----------------------------------------------------------------------------------------------------

Result<Timestamps> Timestamps::create(const Device& device, uint32_t count) {
  VkQueryPoolCreateInfo info{VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
  info.queryType = VK_QUERY_TYPE_TIMESTAMP;
  info.queryCount = count;
  Timestamps timestamps;
  VK_TRY(device.api().CreateQueryPool(device.handle(), &info, nullptr, &timestamps.pool_), "query pool");
  timestamps.device_ = &device;
  return timestamps;
}

Timestamps& Timestamps::operator=(Timestamps&& other) noexcept {
  if (this == &other) return *this;
  reset();
  device_ = other.device_;
  pool_ = std::exchange(other.pool_, VK_NULL_HANDLE);
  return *this;
}

void Timestamps::reset() {
  if (device_ && pool_) device_->api().DestroyQueryPool(device_->handle(), pool_, nullptr);
  pool_ = VK_NULL_HANDLE;
}

void Timestamps::clear(VkCommandBuffer commands, uint32_t first, uint32_t count) const {
  device_->api().CmdResetQueryPool(commands, pool_, first, count);
}

void Timestamps::write(VkCommandBuffer commands, uint32_t idx) const {
  device_->api().CmdWriteTimestamp2(commands, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, pool_, idx);
}

Status Timestamps::read(uint32_t first, std::span<uint64_t> times) const {
  VK_TRY(device_->api().GetQueryPoolResults(device_->handle(), pool_, first, static_cast<uint32_t>(times.size()),
                                            times.size_bytes(), times.data(), sizeof(uint64_t),
                                            VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
         "vkGetQueryPoolResults");
  return {};
}

}  // namespace llmrt::vulkan
