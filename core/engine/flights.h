// The steps that the device has: each is handed over whole, or in two beats where its tail waits for the results before
// it, and they are taken back in order.
//
// Owns the lowered inputs and the tickets of at most kMax steps. Errors are those of the lowering and the backend;
// after one of them only clear() may follow. The engine's thread.
#pragma once

#include <array>
#include <optional>

#include "core/backend/backend.h"
#include "core/base/clock.h"
#include "core/engine/lower.h"
#include "core/schedule/iteration_plan.h"

namespace llmrt {

// A step on the device.
struct Flight {
  const IterationPlan* plan = nullptr;
  TimeNs begin_ns = 0;  // on the device: when it was handed over, or when the one before ended
  TimeNs limit_ns = 0;  // after so long it counts as hung
};

class Flights {
 public:
  static constexpr size_t kMax = 2;  // as many plans may be uncommitted

  Flights(Lowering* lowering, Backend* backend) : lowering_(lowering), backend_(backend) {}

  size_t size() const { return size_; }
  bool is_empty() const { return size_ == 0; }
  Flight& oldest() { return steps_[first_].flight; }
  Flight& newest() { return at(size_ - 1).flight; }

  // The whole step, or its forward part alone while its tail is not complete.
  Status launch(const Flight& flight);
  // The tail of the newest step, which went out without and is complete now. One without samples is not handed over.
  Status launch_tail();
  // Waits for the oldest step: what both of its parts gave. It is gone then, also after an error.
  Result<StepOutput> land();
  // The list of samples of the step that was taken back last; null: it had none.
  const SealedList* landed_sample() const { return landed_sample_; }
  // The device is gone.
  void clear() { size_ = 0; }

 private:
  struct Step {
    Flight flight;
    LoweredStep lowered;
    Ticket ticket = 0;           // of the whole step, or of its forward part
    std::optional<Ticket> tail;  // of a tail that was handed over alone
  };
  Step& at(size_t i) { return steps_[(first_ + i) % kMax]; }

  Lowering* lowering_;
  Backend* backend_;
  std::array<Step, kMax> steps_;
  size_t first_ = 0, size_ = 0;
  const SealedList* landed_sample_ = nullptr;
};

}  // namespace llmrt
