// Runs steps. A submission is: copy the inputs from a host slot to their fixed place, the recordings of the memory, the
// forward and the sample list, copy the results to the host, with timestamps in between.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/vulkan/queue.h"
#include "backends/vulkan/recordings.h"
#include "backends/vulkan/step_slot.h"

namespace llmrt::vulkan {

class Pipelines;

class Executor {
 public:
  static Result<std::unique_ptr<Executor>> create(const Device& device, MemoryBook* book, Pipelines* pipelines,
                                                  const StateConfig& config);

  ~Executor();  // waits for the device

  void drop_recordings() { recordings_.drop(); }
  Status compile(const Resources& resources, std::span<const SealedList* const> lists);
  Status prepare(const Resources& resources, const SealedList& list);
  Result<Ticket> submit(const Resources& resources, const StepSubmission& step);
  Result<StepOutput> wait(Ticket ticket);
  // Milliseconds by op of the forward, then of the sample list; a step's first op carries its time.
  Result<std::vector<double>> profile(const Resources& resources, const StepSubmission& step);
  Status wait_idle() { return queue_->wait(submitted_); }

 private:
  Executor(std::unique_ptr<Queue> queue, Pipelines* pipelines, const StateConfig& config)
      : queue_(std::move(queue)), pipelines_(pipelines), config_(config), recordings_(queue_.get(), pipelines) {}
  Status check_inputs(const StepSubmission& step) const;
  const Device& device() const { return queue_->device(); }

  std::unique_ptr<Queue> queue_;
  Pipelines* pipelines_;
  StateConfig config_;
  Recordings recordings_;
  Timestamps timestamps_;
  StepSlot slots_[kInFlightMax];
  uint64_t submitted_ = 0, waited_ = 0;  // tickets count from 1; the timeline's value is the ticket
};

}  // namespace llmrt::vulkan
