#include "core/schedule/fairness.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace llmrt {
namespace {

constexpr TimeNs kBackgroundAgeNs = 60'000'000'000;
constexpr double kBurstSteps = 8;  // that interactive and agent requests may be served ahead of their share

}  // namespace

Fairness::Fairness(const ClassShares& shares, uint32_t step_tokens)
    : shares_(shares), prefill_(shares.prefill, {kBurstSteps * step_tokens, kBurstSteps * step_tokens, 0, 0}) {}

bool Fairness::is_entitled(Lane lane, TimeNs age_ns) {
  return lane != Lane::kBackground || age_ns >= kBackgroundAgeNs;
}

LaneOrder Fairness::order_for_prefill(const LaneFlags& wants) {
  prefill_.set_active(wants);
  return prefill_.order();
}

LaneOrder Fairness::order_for_room(const LaneFlags& is_entitled, const LaneCounts& rows) const {
  LaneOrder lanes = kLanes;
  const auto key = [&](Lane lane) {
    const size_t i = static_cast<size_t>(lane);
    return std::tuple(!is_entitled[i], (rows[i] + 1) / shares_.decode[i], lane);
  };
  std::ranges::sort(lanes, {}, key);
  return lanes;
}

double Fairness::entitled_rows(Lane lane, const LaneCounts& rows, const LaneFlags& waits) const {
  double sum = 0;
  for (size_t i = 0; i < kNumLanes; ++i)
    if (rows[i] > 0 || waits[i]) sum += shares_.decode[i];
  const uint32_t num_rows = std::accumulate(rows.begin(), rows.end(), 0u);
  return static_cast<double>(num_rows) * shares_.decode[static_cast<size_t>(lane)] / sum;
}

double Fairness::prefill_rate(Lane lane, const LaneFlags& wants, double rate) const {
  double sum = 0;
  for (const Lane other : kLanes) {
    const size_t i = static_cast<size_t>(other);
    if (other == lane || wants[i]) sum += shares_.prefill[i];
  }
  return rate * shares_.prefill[static_cast<size_t>(lane)] / sum;
}

}  // namespace llmrt
