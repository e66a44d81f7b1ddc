#include "backends/vulkan/fragment_probe.h"

#include <cstring>
#include <vector>

#include "backends/vulkan/check.h"
#include "backends/vulkan/recorder.h"
#include "core/base/half.h"

namespace llmrt::vulkan {
namespace {

Status run(const Device& device, const Pipelines& pipelines, const Kernel& kernel, const View& result) {
  const DeviceApi& api = device.api();
  VkCommandPoolCreateInfo pool_info{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
  pool_info.queueFamilyIndex = device.queue_family();
  VkCommandPool pool = VK_NULL_HANDLE;
  VK_TRY(api.CreateCommandPool(device.handle(), &pool_info, nullptr, &pool), "fragment probe: command pool");
  const auto submit = [&]() -> Status {
    VkCommandBufferAllocateInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
    info.commandPool = pool;
    info.commandBufferCount = 1;
    VkCommandBuffer commands = VK_NULL_HANDLE;
    VK_TRY(api.AllocateCommandBuffers(device.handle(), &info, &commands), "fragment probe: command buffer");
    VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
    VK_TRY(api.BeginCommandBuffer(commands, &begin), "fragment probe: vkBeginCommandBuffer");
    Push push;
    push.add(result);
    api.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipelines.find(kernel));
    api.CmdPushConstants(commands, pipelines.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0,
                         static_cast<uint32_t>(push.bytes().size()), push.bytes().data());
    api.CmdDispatch(commands, 1, 1, 1);
    VkMemoryBarrier2 barrier{VK_STRUCTURE_TYPE_MEMORY_BARRIER_2};
    barrier.srcStageMask = VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT;
    barrier.srcAccessMask = VK_ACCESS_2_MEMORY_WRITE_BIT;
    barrier.dstStageMask = VK_PIPELINE_STAGE_2_HOST_BIT;
    barrier.dstAccessMask = VK_ACCESS_2_HOST_READ_BIT;
    VkDependencyInfo dependency{VK_STRUCTURE_TYPE_DEPENDENCY_INFO};
    dependency.memoryBarrierCount = 1;
    dependency.pMemoryBarriers = &barrier;
    api.CmdPipelineBarrier2(commands, &dependency);
    VK_TRY(api.EndCommandBuffer(commands), "fragment probe: vkEndCommandBuffer");
    VkCommandBufferSubmitInfo submitted{VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO};
    submitted.commandBuffer = commands;
    VkSubmitInfo2 submit_info{VK_STRUCTURE_TYPE_SUBMIT_INFO_2};
    submit_info.commandBufferInfoCount = 1;
    submit_info.pCommandBufferInfos = &submitted;
    VK_TRY(api.QueueSubmit2(device.queue(), 1, &submit_info, VK_NULL_HANDLE), "fragment probe: vkQueueSubmit2");
    VK_TRY(api.DeviceWaitIdle(device.handle()), "fragment probe: vkDeviceWaitIdle");
    return {};
  };
  Status status = submit();
  api.DestroyCommandPool(device.handle(), pool, nullptr);
  return status;
}

}  // namespace

bool fragment_fits(const Fragment& shape, std::span<const uint16_t> halves) {
  if (halves.size() != (shape.m + shape.n) * size_t{shape.k}) return false;
  std::vector<bool> seen(shape.k);
  for (uint32_t k = 0; k < shape.k; ++k) {
    const float number = f16_value(halves[k]);  // of k, as the lane with row 0 had it in mind
    if (!(number >= 0 && number < static_cast<float>(shape.k)) || seen[static_cast<uint32_t>(number)]) return false;
    seen[static_cast<uint32_t>(number)] = true;
    for (uint32_t row = 0; row < shape.m + shape.n; ++row) {
      const uint32_t line = row < shape.m ? row : row - shape.m;
      if (f16_value(halves[row * shape.k + k]) != static_cast<float>(line * shape.k) + number) return false;
    }
  }
  return true;
}

Result<bool> probe_fragment(const Device& device, Pipelines* pipelines, MemoryBook* book) {
  const Fragment& shape = device.traits().fragment;
  const Kernel kernel{"fragment_probe", device.traits().subgroup_size, {shape.m, shape.n, shape.k, shape.row_lanes}};
  if (Status status = pipelines->compile({&kernel, 1}); !status) return status.error();
  std::vector<uint16_t> halves((shape.m + shape.n) * size_t{shape.k}, 0xffff);
  const uint64_t bytes = halves.size() * sizeof(uint16_t);
  auto buffer = Buffer::create(device, book, MemoryKind::kOther, Buffer::Where::kHostRead, bytes);
  if (!buffer) return buffer.error();
  std::memcpy(buffer->mapped(), halves.data(), bytes);
  if (Status status = run(device, *pipelines, kernel, {buffer->address(), &*buffer, 0, bytes}); !status)
    return status.error();
  std::memcpy(halves.data(), buffer->mapped(), bytes);
  return fragment_fits(shape, halves);
}

}  // namespace llmrt::vulkan
