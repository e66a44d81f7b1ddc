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

bool is_entitled(const Sequence& sequence, TimeNs now) {
  return sequence.lane() != Lane::kBackground || now - sequence.request.arrival_ns >= kBackgroundAgeNs;
}

}  // namespace

// Of those that wait for room.
bool Scheduler::Impl::has_share(Lane lane, TimeNs now) const {
  const auto& queue = queue_of(lane);
  return lane != Lane::kBackground || (!queue.empty() && is_entitled(*queue.begin()->second, now));
}

std::array<Lane, kNumLanes> Scheduler::Impl::order_for_prefill(TimeNs now) {
  std::array<bool, kNumLanes> active = {};
  for (const Sequence* sequence : behind) active[static_cast<size_t>(sequence->lane())] |= is_entitled(*sequence, now);
  for (const Lane lane : kLanes) active[static_cast<size_t>(lane)] |= !queue_of(lane).empty() && has_share(lane, now);
  prefill.set_active(active);
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
