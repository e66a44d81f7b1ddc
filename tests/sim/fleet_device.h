// A fake device in simulated time: a step's results are there once its time is over. It can be lost, or tell wrong
// log-probabilities.
#pragma once

#include <deque>
#include <utility>

#include "core/backend/forwarding.h"
#include "tests/sim/fleet_scenario.h"

namespace llmrt::test::fleet {

// Time that the simulation alone moves.
class WorkerClock final : public Clock {
 public:
  TimeNs now_ns() const override { return now_ns_; }
  void sleep_until(TimeNs) const override {}
  void move_to(TimeNs now) { now_ns_ = now; }

 private:
  TimeNs now_ns_ = 1;
};

class FleetDevice final : public ForwardingBackend {
 public:
  FleetDevice(const WorkerPlan& plan, const Clock* clock)
      : ForwardingBackend(std::make_shared<FakeBackend>(plan.backend)), plan_(plan), clock_(clock) {}

  Result<Ticket> submit(const StepSubmission& step) override {
    if (is_lost() && !plan_.is_lost_in_wait) return make_error(ErrorCode::kDeviceLost, "lost as it was handed a step");
    const Result<Ticket> ticket = inner().submit(step);
    if (!ticket) return ticket;
    Result<StepOutput> output = inner().wait(*ticket);
    if (!output) return output.error();
    const double ms = output->memory_ms + output->forward_ms + output->sample_ms;
    const TimeNs begin = std::max(free_ns_, clock_->now_ns());
    free_ns_ = begin + static_cast<TimeNs>(ms * kMs);
    busy_ms_ += ms;
    const bool fails = clock_->now_ns() >= plan_.fails_from_ns && clock_->now_ns() < plan_.fails_to_ns;
    for (LogprobRow& row : output->logprobs)
      if (fails) row.entries[0].logprob = 1;
    running_.emplace_back(*ticket, *std::move(output));
    return ticket;
  }
  Result<StepOutput> wait(Ticket) override {
    if (is_lost()) return make_error(ErrorCode::kDeviceLost, "lost while a step ran");
    StepOutput output = std::move(running_.front().second);
    running_.pop_front();
    return output;
  }

  bool is_lost() const { return clock_->now_ns() >= plan_.lost_ns; }
  bool is_busy() const { return !running_.empty(); }
  TimeNs free_ns() const { return free_ns_; }  // when its last step is over
  double busy_ms() const { return busy_ms_; }

 private:
  const WorkerPlan plan_;
  const Clock* const clock_;
  std::deque<std::pair<Ticket, StepOutput>> running_;
  TimeNs free_ns_ = 0;
  double busy_ms_ = 0;
};

}  // namespace llmrt::test::fleet
