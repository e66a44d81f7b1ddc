#include "backends/vulkan/recorder.h"

#include "core/base/check.h"

namespace llmrt::vulkan {
namespace {

void memory_barrier(const Device& device, VkCommandBuffer commands, VkPipelineStageFlags2 source,
                    VkPipelineStageFlags2 target, VkAccessFlags2 target_access) {
  VkMemoryBarrier2 barrier{VK_STRUCTURE_TYPE_MEMORY_BARRIER_2};
  barrier.srcStageMask = source;
  barrier.srcAccessMask = VK_ACCESS_2_MEMORY_WRITE_BIT;
  barrier.dstStageMask = target;
  barrier.dstAccessMask = target_access;
  VkDependencyInfo dependency{VK_STRUCTURE_TYPE_DEPENDENCY_INFO};
  dependency.memoryBarrierCount = 1;
  dependency.pMemoryBarriers = &barrier;
  device.api().CmdPipelineBarrier2(commands, &dependency);
}

// Binds the launch's pipeline where it is not `bound`.
void dispatch(const Device& device, const Pipelines& pipelines, VkCommandBuffer commands, const Launch& launch,
              VkPipeline* bound) {
  const DeviceApi& api = device.api();
  const VkPipeline pipeline = pipelines.find(launch.kernel);
  LLMRT_CHECK(pipeline != VK_NULL_HANDLE, launch.kernel.shader);
  if (pipeline != *bound) api.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
  *bound = pipeline;
  api.CmdPushConstants(commands, pipelines.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0, launch.push.size,
                       launch.push.bytes.data());
  api.CmdDispatch(commands, launch.groups.x, launch.groups.y, launch.groups.z);
}

}  // namespace

void record_barrier(const Device& device, VkCommandBuffer commands, BarrierAfter after) {
  memory_barrier(
      device, commands,
      after == BarrierAfter::kLaunches ? VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT : VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,
      VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT,
      VK_ACCESS_2_SHADER_STORAGE_READ_BIT | VK_ACCESS_2_SHADER_STORAGE_WRITE_BIT);
}

void record_full_barrier(const Device& device, VkCommandBuffer commands) {
  memory_barrier(device, commands, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT,
                 VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT | VK_PIPELINE_STAGE_2_HOST_BIT,
                 VK_ACCESS_2_MEMORY_READ_BIT | VK_ACCESS_2_MEMORY_WRITE_BIT);
}

std::vector<Kernel> kernels_of(const Program& program) {
  std::vector<Kernel> kernels;
  for (const Launch& launch : program.launches) kernels.push_back(launch.kernel);
  return kernels;
}

Result<Program> make_compiled_program(const Resources& resources, Pipelines* pipelines, const OpList& list) {
  auto program = make_program(resources, list);
  if (!program) return program;
  if (Status status = pipelines->compile(kernels_of(*program)); !status) return status.error();
  return program;
}

void record_launch(const Device& device, const Pipelines& pipelines, VkCommandBuffer commands, const Launch& launch) {
  VkPipeline bound = VK_NULL_HANDLE;
  dispatch(device, pipelines, commands, launch, &bound);
}

void record_program(const Device& device, const Pipelines& pipelines, VkCommandBuffer commands,
                    const Program& program) {
  record_barrier(device, commands, BarrierAfter::kAllCommands);
  VkPipeline bound = VK_NULL_HANDLE;
  for (const Launch& launch : program.launches) {
    if (launch.barrier) record_barrier(device, commands, BarrierAfter::kLaunches);
    dispatch(device, pipelines, commands, launch, &bound);
  }
}

void record_step(const Device& device, const Pipelines& pipelines, VkCommandBuffer commands, const Program& program,
                 const ProgramStep& step) {
  VkPipeline bound = VK_NULL_HANDLE;
  for (uint32_t i = 0; i < step.num_launches; ++i) {
    const Launch& launch = program.launches[step.first_launch + i];
    if (launch.barrier_in_step) record_barrier(device, commands, BarrierAfter::kLaunches);
    dispatch(device, pipelines, commands, launch, &bound);
  }
}

}  // namespace llmrt::vulkan
