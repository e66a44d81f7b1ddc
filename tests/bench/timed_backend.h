// The backend of hashes on a clock that moves by what its steps say that they take.
#pragma once

#include <algorithm>
#include <deque>
#include <map>

#include "tests/fakes/fake_backend.h"
#include "tests/fakes/sim_clock.h"

namespace llmrt::test {

class TimedBackend final : public FakeBackend {
 public:
  TimedBackend(SimClock* clock, FakeBackendConfig config, int* num_loads)
      : FakeBackend(config), clock_(clock), num_loads_(num_loads), caps_(FakeBackend::caps()) {
    caps_.kv_dtypes = {KvDType::kF16, KvDType::kI8};
  }
  const Caps& caps() const override { return caps_; }
  Status load_weights(const WeightTable& weights, const Progress& progress) override {
    ++*num_loads_;
    return FakeBackend::load_weights(weights, progress);
  }
  Result<Ticket> submit(const StepSubmission& step) override {
    Result<Ticket> ticket = FakeBackend::submit(step);
    if (!ticket) return ticket;
    submitted_ns_.push_back(clock_->now_ns());
    if (!step.forward) return ticket;
    const auto inputs = unpack_forward(step.forward_inputs);
    if (!inputs) return inputs.error();
    for (const RowRecord& row : inputs->rows)
      if (row.start == 0 && row.adapter_id != 0) ++adapted_prompts_[row.adapter_id];
    return ticket;
  }
  // A step begins when the one before is over.
  Result<StepOutput> wait(Ticket ticket) override {
    Result<StepOutput> output = FakeBackend::wait(ticket);
    if (!output) return output;
    end_ns_ = std::max(end_ns_, submitted_ns_.front()) + static_cast<TimeNs>(output->forward_ms * 1e6);
    submitted_ns_.pop_front();
    clock_->sleep_until(end_ns_);
    return output;
  }
  // Prompts that began with an adapter, by the adapter_id of their rows.
  const std::map<uint32_t, size_t>& adapted_prompts() const { return adapted_prompts_; }

 private:
  SimClock* clock_;
  int* num_loads_;
  TimeNs end_ns_ = 0;
  std::deque<TimeNs> submitted_ns_;
  std::map<uint32_t, size_t> adapted_prompts_;
  Caps caps_;
};

}  // namespace llmrt::test
