// The host side of steps in flight: pinned inputs and results, and the events around each list. One slot a step, used
// in turn, so that a step can be filled while the one before runs.
#pragma once

#include <cuda_runtime_api.h>

#include "backends/cuda/memory.h"
#include "core/backend/backend.h"

namespace llmrt::cuda {

class StepRing {
 public:
  struct Slot {
    PinnedBuffer forward_inputs, sample_inputs, results, logprobs;
    cudaEvent_t begin = nullptr, memory_end = nullptr, forward_end = nullptr, sample_begin = nullptr;
    cudaEvent_t sample_end = nullptr, done = nullptr;
    bool has_memory = false, has_forward = false, has_sample = false, want_logprobs = false;
    uint32_t num_sampled = 0;
  };

  StepRing() = default;
  ~StepRing() { destroy_events(); }
  StepRing(const StepRing&) = delete;
  StepRing& operator=(const StepRing&) = delete;

  Status create(const StateConfig& config);
  // The slot of a ticket; tickets count from 1.
  Slot& slot(Ticket ticket) { return slots_[ticket % kInFlightMax]; }
  // Waits for the slot's step and takes its results.
  Result<StepOutput> collect(Ticket ticket);

 private:
  void destroy_events();
  Slot slots_[kInFlightMax];
};

}  // namespace llmrt::cuda
