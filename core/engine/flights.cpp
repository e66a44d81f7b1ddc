#include "core/engine/flights.h"

#include "core/base/check.h"

namespace llmrt {

Status Flights::launch(const Flight& flight) {
  LLMRT_CHECK(size_ < kMax, "more steps on the device than may be uncommitted");
  Step& step = at(size_);
  step.flight = flight;
  step.tail.reset();
  lowering_->lower_forward(*flight.plan, &step.lowered);
  const bool is_whole = flight.plan->is_complete();
  if (is_whole)
    if (Status status = lowering_->lower_tail(*flight.plan, &step.lowered); !status) return status;
  Result<Ticket> ticket = backend_->submit(is_whole ? step.lowered.submission() : step.lowered.forward_submission());
  if (!ticket) return ticket.error();
  step.ticket = *ticket;
  ++size_;
  return {};
}

Status Flights::launch_tail() {
  Step& step = at(size_ - 1);
  if (Status status = lowering_->lower_tail(*step.flight.plan, &step.lowered); !status) return status;
  if (step.lowered.sample == nullptr) return {};
  Result<Ticket> ticket = backend_->submit(step.lowered.tail_submission());
  if (!ticket) return ticket.error();
  step.tail = *ticket;
  return {};
}

Result<StepOutput> Flights::land() {
  const Step& step = steps_[first_];
  landed_sample_ = step.lowered.sample;
  first_ = (first_ + 1) % kMax;
  --size_;
  Result<StepOutput> output = backend_->wait(step.ticket);
  if (!output || !step.tail) return output;
  Result<StepOutput> tail = backend_->wait(*step.tail);
  if (!tail) return tail;
  tail->memory_ms = output->memory_ms;
  tail->forward_ms = output->forward_ms;
  return tail;
}

}  // namespace llmrt
