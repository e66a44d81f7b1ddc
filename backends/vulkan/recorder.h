// Compiles the pipelines of a program, then writes it into command buffers.
#pragma once

#include "backends/vulkan/device.h"
#include "backends/vulkan/pipelines.h"
#include "backends/vulkan/program.h"

namespace llmrt::vulkan {

// Everything that earlier launches, or with kAllCommands earlier submissions, wrote becomes visible.
enum class BarrierAfter : uint8_t { kLaunches, kAllCommands };
void record_barrier(const Device& device, VkCommandBuffer commands, BarrierAfter after);
// Against everything before and behind, the host included.
void record_full_barrier(const Device& device, VkCommandBuffer commands);

// The kernels of its launches, one for each.
std::vector<Kernel> kernels_of(const Program& program);
// The program of a list, with its pipelines. Errors: those of make_program and of the compiler.
Result<Program> make_compiled_program(const Resources& resources, Pipelines* pipelines, const OpList& list);

// One launch by itself; barriers are the caller's.
void record_launch(const Device& device, const Pipelines& pipelines, VkCommandBuffer commands, const Launch& launch);
// A whole program, behind a barrier against earlier submissions.
void record_program(const Device& device, const Pipelines& pipelines, VkCommandBuffer commands, const Program& program);
// One step of it, behind a barrier that the caller has set.
void record_step(const Device& device, const Pipelines& pipelines, VkCommandBuffer commands, const Program& program,
                 const ProgramStep& step);

}  // namespace llmrt::vulkan
