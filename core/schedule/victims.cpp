#include "core/schedule/victims.h"

#include <algorithm>

namespace llmrt {
namespace {

constexpr uint32_t kSparedFrom = 2;  // times that a sequence has yielded

uint32_t protection(const Sequence& sequence) {
  return sequence.record.num_preemptions < kSparedFrom ? 0 : sequence.record.num_preemptions;
}

}  // namespace

bool yields_before(const Sequence* a, const Sequence* b) {
  if (a->is_paused != b->is_paused) return a->is_paused;
  if (a->lane() != b->lane()) return a->lane() > b->lane();
  if (protection(*a) != protection(*b)) return protection(*a) < protection(*b);
  return a->residency.admission > b->residency.admission;
}

Sequence& pick_victim(std::span<Sequence* const> running) {
  return **std::ranges::min_element(running, yields_before);
}

std::vector<Sequence*> yield_order(std::span<Sequence* const> running) {
  std::vector<Sequence*> order(running.begin(), running.end());
  std::ranges::sort(order, yields_before);
  return order;
}

}  // namespace llmrt
