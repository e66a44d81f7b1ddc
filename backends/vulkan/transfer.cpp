#include "backends/vulkan/transfer.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "backends/vulkan/check.h"

namespace llmrt::vulkan {

struct Transfer::Lane {
  Buffer staging;
  VkCommandBuffer commands = VK_NULL_HANDLE;
  VkSemaphore done = VK_NULL_HANDLE;  // timeline
  uint64_t submitted = 0;
};

Transfer::Transfer(const Device& device, MemoryBook* book) : device_(device), book_(book) {}

Result<std::unique_ptr<Transfer>> Transfer::create(const Device& device, MemoryBook* book) {
  std::unique_ptr<Transfer> transfer(new Transfer(device, book));
  VkCommandPoolCreateInfo info{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  info.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
  info.queueFamilyIndex = device.queue_family();
  VK_TRY(device.api().CreateCommandPool(device.handle(), &info, nullptr, &transfer->pool_), "command pool");
  return transfer;
}

Transfer::~Transfer() {
  for (const auto& lane : lanes_) device_.api().DestroySemaphore(device_.handle(), lane->done, nullptr);
  device_.api().DestroyCommandPool(device_.handle(), pool_, nullptr);
}

Result<std::unique_ptr<Transfer::Lane>> Transfer::make_lane() {
  auto lane = std::make_unique<Lane>();
  VkCommandBufferAllocateInfo commands{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
  commands.commandPool = pool_;
  commands.commandBufferCount = 1;
  VK_TRY(device_.api().AllocateCommandBuffers(device_.handle(), &commands, &lane->commands), "command buffer");
  VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  VkSemaphoreCreateInfo semaphore{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
  VK_TRY(device_.api().CreateSemaphore(device_.handle(), &semaphore, nullptr, &lane->done), "semaphore");
  return lane;
}

Status Transfer::reserve(Lane& lane, uint64_t bytes) {
  if (lane.staging.bytes() >= bytes) return {};
  auto staging = Buffer::create(device_, book_, MemoryKind::kOther, Buffer::Where::kHostRead, bytes);
  if (!staging) return staging.error();
  lane.staging = std::move(*staging);
  return {};
}

Result<Transfer::Lane*> Transfer::first_lane(uint64_t bytes) {
  if (lanes_.empty()) {
    auto lane = make_lane();
    if (!lane) return lane.error();
    lanes_.push_back(std::move(*lane));
  }
  if (Status status = reserve(*lanes_[0], bytes); !status) return status.error();
  return lanes_[0].get();
}

Status Transfer::submit(Lane& lane, const std::function<void(VkCommandBuffer)>& record) {
  const DeviceApi& api = device_.api();
  VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  VK_TRY(api.BeginCommandBuffer(lane.commands, &begin), "vkBeginCommandBuffer");
  // Everything before is done and visible, and what is recorded is visible to everything after, the host among them.
  VkMemoryBarrier2 barrier{VK_STRUCTURE_TYPE_MEMORY_BARRIER_2};
  barrier.srcStageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
  barrier.srcAccessMask = VK_ACCESS_2_MEMORY_WRITE_BIT;
  barrier.dstStageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_2_HOST_BIT;
  barrier.dstAccessMask = VK_ACCESS_2_MEMORY_READ_BIT | VK_ACCESS_2_MEMORY_WRITE_BIT;
  VkDependencyInfo dependency{VK_STRUCTURE_TYPE_DEPENDENCY_INFO};
  dependency.memoryBarrierCount = 1;
  dependency.pMemoryBarriers = &barrier;
  api.CmdPipelineBarrier2(lane.commands, &dependency);
  record(lane.commands);
  api.CmdPipelineBarrier2(lane.commands, &dependency);
  VK_TRY(api.EndCommandBuffer(lane.commands), "vkEndCommandBuffer");
  VkCommandBufferSubmitInfo commands{VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO};
  commands.commandBuffer = lane.commands;
  VkSemaphoreSubmitInfo signal{VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO};
  signal.semaphore = lane.done;
  signal.value = ++lane.submitted;
  signal.stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
  VkSubmitInfo2 submit{VK_STRUCTURE_TYPE_SUBMIT_INFO_2};
  submit.commandBufferInfoCount = 1;
  submit.pCommandBufferInfos = &commands;
  submit.signalSemaphoreInfoCount = 1;
  submit.pSignalSemaphoreInfos = &signal;
  VK_TRY(api.QueueSubmit2(device_.queue(), 1, &submit, VK_NULL_HANDLE), "vkQueueSubmit2");
  return {};
}

Status Transfer::copy(Lane& lane, VkBuffer source, uint64_t source_offset, VkBuffer target, uint64_t target_offset,
                      uint64_t bytes) {
  return submit(lane, [&](VkCommandBuffer commands) {
    const VkBufferCopy region{source_offset, target_offset, bytes};
    if (source)
      device_.api().CmdCopyBuffer(commands, source, target, 1, &region);
    else
      device_.api().CmdFillBuffer(commands, target, target_offset, bytes, 0);
  });
}

Status Transfer::execute(const std::function<void(VkCommandBuffer)>& record) {
  auto lane = first_lane(1);
  if (!lane) return lane.error();
  if (Status status = submit(**lane, record); !status) return status;
  return finish(**lane);
}

Status Transfer::finish(Lane& lane) {
  VkSemaphoreWaitInfo wait{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
  wait.semaphoreCount = 1;
  wait.pSemaphores = &lane.done;
  wait.pValues = &lane.submitted;
  VK_TRY(device_.api().WaitSemaphores(device_.handle(), &wait, UINT64_MAX), "vkWaitSemaphores");
  return {};
}

Status Transfer::run(std::span<const Job> jobs, const Progress& progress) {
  uint64_t total = 0, bytes_max = 0;
  bool staged = false;
  for (const Job& job : jobs) {
    total += job.target.bytes;
    bytes_max = std::max(bytes_max, job.target.bytes);
    staged |= job.target.buffer->mapped() == nullptr;
  }
  const size_t num_lanes = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 8);
  std::vector<std::unique_ptr<Lane>> lanes;
  for (size_t i = 0; i < num_lanes; ++i) {
    auto lane = make_lane();
    if (!lane) return lane.error();
    if (staged)
      if (Status status = reserve(**lane, bytes_max); !status) return status;
    lanes.push_back(std::move(*lane));
  }

  std::mutex mutex;  // the queue, the error and the count of bytes
  std::condition_variable changed;
  std::optional<Error> failed;
  uint64_t done = 0;
  size_t running = num_lanes;
  std::atomic<size_t> next{0};
  const auto work = [&](Lane& lane) {
    for (size_t i = next++; i < jobs.size(); i = next++) {
      const Job& job = jobs[i];
      Status status;
      if (std::byte* mapped = job.target.buffer->mapped()) {
        job.fill(mapped + job.target.offset);
      } else {
        if (lane.submitted) status = finish(lane);
        if (status) job.fill(lane.staging.mapped());
        const std::lock_guard lock(mutex);
        if (status)
          status =
              copy(lane, lane.staging.handle(), 0, job.target.buffer->handle(), job.target.offset, job.target.bytes);
      }
      const std::lock_guard lock(mutex);
      if (!status && !failed) failed = status.error();
      if (failed) break;
      done += job.target.bytes;
      changed.notify_one();
    }
    const std::lock_guard lock(mutex);
    --running;
    changed.notify_one();
  };
  std::vector<std::thread> threads;
  for (auto& lane : lanes) threads.emplace_back(work, std::ref(*lane));
  {
    std::unique_lock lock(mutex);
    for (uint64_t shown = ~0ull; running > 0 || shown != done;) {
      shown = done;
      if (progress) progress(done, total);
      if (running > 0) changed.wait(lock, [&] { return running == 0 || shown != done; });
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& lane : lanes) {
    if (lane->submitted)
      if (Status status = finish(*lane); !status && !failed) failed = status.error();
    device_.api().FreeCommandBuffers(device_.handle(), pool_, 1, &lane->commands);
    device_.api().DestroySemaphore(device_.handle(), lane->done, nullptr);
  }
  if (failed) return *failed;
  return {};
}

Status Transfer::write(const View& target, std::span<const std::byte> bytes) {
  if (std::byte* mapped = target.buffer->mapped()) {
    std::memcpy(mapped + target.offset, bytes.data(), bytes.size());
    return {};
  }
  auto lane = first_lane(bytes.size());
  if (!lane) return lane.error();
  std::memcpy((*lane)->staging.mapped(), bytes.data(), bytes.size());
  if (Status status = copy(**lane, (*lane)->staging.handle(), 0, target.buffer->handle(), target.offset, bytes.size());
      !status)
    return status;
  return finish(**lane);
}

Status Transfer::read(const View& source, std::span<std::byte> bytes) {
  if (const std::byte* mapped = source.buffer->mapped()) {
    std::memcpy(bytes.data(), mapped + source.offset, bytes.size());
    return {};
  }
  auto lane = first_lane(bytes.size());
  if (!lane) return lane.error();
  if (Status status = copy(**lane, source.buffer->handle(), source.offset, (*lane)->staging.handle(), 0, bytes.size());
      !status)
    return status;
  if (Status status = finish(**lane); !status) return status;
  std::memcpy(bytes.data(), (*lane)->staging.mapped(), bytes.size());
  return {};
}

Status Transfer::zero(const View& target) {
  auto lane = first_lane(1);
  if (!lane) return lane.error();
  if (Status status = copy(**lane, VK_NULL_HANDLE, 0, target.buffer->handle(), target.offset, target.bytes); !status)
    return status;
  return finish(**lane);
}

}  // namespace llmrt::vulkan
