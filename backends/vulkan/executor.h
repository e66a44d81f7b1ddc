// Runs op lists: one recorded command buffer per list, resubmitted as it is, since every live size comes from the
// inputs. A submission is: copy the inputs from a host ring slot to their fixed place, the recordings of the memory,
// the forward and the sample list, copy the results to the host, with timestamps in between.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "backends/vulkan/recorder.h"

namespace llmrt::vulkan {

class Executor {
 public:
  static Result<std::unique_ptr<Executor>> create(const Device& device, MemoryBook* book, Pipelines* pipelines,
                                                  const StateConfig& config);
  ~Executor();

  // Recordings refer to addresses: they are dropped when any resource moves.
  void drop_recordings();
  Status compile(const Resources& resources, std::span<const OpList* const> lists);
  Status prepare(const Resources& resources, const OpList& list);
  Result<Ticket> submit(const Resources& resources, const StepSubmission& step);
  Result<StepOutput> wait(Ticket ticket);
  Result<std::vector<double>> profile(const Resources& resources, const StepSubmission& step);
  Status wait_idle();

 private:
  struct Recording {
    VkCommandBuffer commands = VK_NULL_HANDLE;
    uint64_t last_used = 0;
    ArenaPlan plan;
  };
  // Host side of one submission in flight.
  struct RingSlot {
    Buffer inputs, results;
    VkCommandBuffer head = VK_NULL_HANDLE, tail = VK_NULL_HANDLE;
    VkCommandBuffer between[2] = {};  // timestamps between the lists
    Ticket ticket = 0;
    uint32_t num_sampled = 0;
    bool has_memory = false, has_forward = false, has_sample = false, want_logprobs = false;
  };

  Executor(const Device& device, Pipelines* pipelines, const StateConfig& config)
      : device_(device), pipelines_(pipelines), config_(config) {}
  Result<Recording*> recording(const Resources& resources, const OpList& list);
  Result<ArenaPlan> plan(const Resources& resources, const OpList& list) const;
  // Adds what the list will dispatch.
  Status collect(const Resources& resources, const OpList& list, const ArenaPlan& plan,
                 std::vector<Kernel>* kernels) const;
  Status record(const Resources& resources, const OpList& list, Recording* recording);
  Status check_inputs(const StepSubmission& step) const;
  Result<VkCommandBuffer> allocate_commands();
  Status begin_commands(VkCommandBuffer commands, bool once);
  void copy_inputs(const Resources& resources, RingSlot& slot, const StepSubmission& step);
  void copy_results(const Resources& resources, RingSlot& slot);
  Status queue_submit(std::span<const VkCommandBuffer> commands, uint64_t signal);
  Status wait_for(uint64_t value);
  void evict_recordings();

  const Device& device_;
  Pipelines* pipelines_;
  StateConfig config_;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkSemaphore timeline_ = VK_NULL_HANDLE;
  VkQueryPool queries_ = VK_NULL_HANDLE;
  RingSlot ring_[kInFlightMax];
  uint64_t submitted_ = 0, waited_ = 0;  // tickets count from 1; the timeline's value is the ticket
  std::unordered_map<uint64_t, Recording> recordings_;
};

}  // namespace llmrt::vulkan
