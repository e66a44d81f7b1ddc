// What the lanes want, for Fairness.
#include <algorithm>

#include "core/schedule/scheduler_impl.h"

namespace llmrt {

// Of those that wait for room.
bool Scheduler::Impl::has_share(Lane lane, TimeNs now) const {
  const auto& queue = waiting.queue(lane);
  if (lane != Lane::kBackground) return true;
  return !queue.empty() && Fairness::is_entitled(lane, now - queue.begin()->second->request.arrival_ns);
}

LaneOrder Scheduler::Impl::order_for_prefill(TimeNs now) {
  LaneFlags wants = {};
  for (const Sequence* sequence : behind) {
    const Lane lane = sequence->lane();
    wants[static_cast<size_t>(lane)] |= Fairness::is_entitled(lane, now - sequence->request.arrival_ns);
  }
  for (const Lane lane : kLanes)
    wants[static_cast<size_t>(lane)] |= !waiting.queue(lane).empty() && has_share(lane, now);
  return fairness.order_for_prefill(wants);
}

LaneOrder Scheduler::Impl::order_for_room(TimeNs now) const {
  LaneFlags is_entitled = {};
  for (const Lane lane : kLanes) is_entitled[static_cast<size_t>(lane)] = has_share(lane, now);
  return fairness.order_for_room(is_entitled, running.lane_rows());
}

double Scheduler::Impl::entitled_rows(Lane lane) const {
  return fairness.entitled_rows(lane, running.lane_rows(), waiting.lanes());
}

}  // namespace llmrt
