// Whose turn it is. Two things may be scarce, and each is shared by its own shares: tokens of a step, of which prompts
// want more than there are, and room (KV blocks and slots), which is held for as long as an answer takes. While
// everybody finds room, prompts are served and admitted by their lanes' shares of prefill; while somebody does not, the
// lane goes first that holds the fewest rows for its share of decode.
#include <algorithm>
#include <tuple>

#include "core/schedule/scheduler_impl.h"

namespace llmrt {
namespace {

constexpr TimeNs kBackgroundAgeNs = 60'000'000'000;  // then it has a share of its own

}  // namespace

bool Scheduler::Impl::has_share(Lane lane, TimeNs now) const {
  if (lane != Lane::kBackground) return true;
  const auto& queue = queue_of(lane);
  return !queue.empty() && now - queue.begin()->second->request.arrival_ns >= kBackgroundAgeNs;
}

std::array<Lane, kNumLanes> Scheduler::Impl::order_for_prefill(TimeNs now) {
  std::array<bool, kNumLanes> wants = {};
  for (const Sequence* sequence : behind) wants[static_cast<size_t>(sequence->lane())] = true;
  for (const Lane lane : kLanes) {
    bool& active = wants[static_cast<size_t>(lane)];
    active = (active || !queue_of(lane).empty()) && has_share(lane, now);
  }
  prefill.set_active(wants);
  return prefill.order();
}

std::array<Lane, kNumLanes> Scheduler::Impl::order_for_room(TimeNs now) const {
  std::array<Lane, kNumLanes> lanes = kLanes;
  const auto key = [&](Lane lane) {
    const size_t i = static_cast<size_t>(lane);
    return std::tuple(!has_share(lane, now), (num_rows[i] + 1) / config.class_shares.decode[i], lane);
  };
  std::ranges::sort(lanes, {}, key);
  return lanes;
}

// Of as many rows as run, among the lanes that run or wait.
double Scheduler::Impl::entitled_rows(Lane lane) const {
  double sum = 0;
  for (size_t i = 0; i < kNumLanes; ++i)
    if (num_rows[i] > 0 || !queues[i].empty()) sum += config.class_shares.decode[i];
  return static_cast<double>(running.size()) * config.class_shares.decode[static_cast<size_t>(lane)] / sum;
}

}  // namespace llmrt
