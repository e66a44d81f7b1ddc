// The host's side of one submission in flight: its inputs and results, and the commands around the lists.
#pragma once

#include <span>

#include "backends/vulkan/memory.h"
#include "backends/vulkan/queue.h"
#include "backends/vulkan/resources.h"
#include "core/backend/backend.h"

namespace llmrt::vulkan {

class StepSlot {
 public:
  static Result<StepSlot> create(Queue* queue, MemoryBook* book, const StateConfig& config);

  VkCommandBuffer head = VK_NULL_HANDLE, tail = VK_NULL_HANDLE;
  VkCommandBuffer between[2] = {};  // timestamps between the lists
  bool has_memory = false, has_forward = false, has_sample = false;

  // Waits for whatever still reads the inputs' place on the device, then fills it.
  void copy_inputs(VkCommandBuffer commands, const Resources& resources, const StepSubmission& step);
  // Brings back the step's results behind all commands before.
  void copy_results(VkCommandBuffer commands, const Resources& resources, const StepSubmission& step);
  // The results of the last copy, once it is done.
  void take_results(StepOutput* output) const;

 private:
  const Device* device_ = nullptr;
  StateConfig config_;
  Buffer inputs_, results_;
  uint32_t num_sampled_ = 0;
  bool want_logprobs_ = false;
};

}  // namespace llmrt::vulkan
