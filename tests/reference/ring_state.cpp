#include "tests/reference/ring_state.h"

#include <algorithm>

namespace llmrt::reference {
namespace {

uint32_t base_of(uint32_t end) {
  return end / kRingTokens * kRingTokens;
}

}  // namespace

Result<RingState> RingState::begin(Machine& machine, const RowRecord& row, const StatePart& part, const StateRing& ring,
                                   const std::vector<uint32_t>& key_head_of) {
  auto record =
      RowState::begin(machine, row, part.kv_group, part.layer, part.first, ring.matrix_numbers() + ring.numbers());
  if (!record) return record.error();
  RingState state(std::move(*record), row, ring);
  state.state_.assign(ring.matrix_numbers(), 0.0);
  if (base_of(row.start) > 0) std::copy_n(state.record_.data(), ring.matrix_numbers(), state.state_.begin());
  state.fold(key_head_of);
  return state;
}

void RingState::fold(const std::vector<uint32_t>& key_head_of) {
  for (uint32_t p = base_of(row_->start); p < row_->start; ++p) {
    for (uint32_t head = 0; head < ring_.heads; ++head) {
      const double *key = ring() + ring_.keys(key_head_of[head], p), *value = ring() + ring_.values(head, p);
      const double decay = ring()[ring_.decay(head, p)];
      double* numbers = state_.data() + uint64_t{head} * ring_.key_dim * ring_.value_dim;
      for (uint32_t k = 0; k < ring_.key_dim; ++k)
        for (uint32_t v = 0; v < ring_.value_dim; ++v, ++numbers) *numbers = decay * *numbers + key[k] * value[v];
    }
  }
}

void RingState::advance(const RingEntry& entry) {
  for (uint32_t head = 0; head < ring_.key_heads; ++head)
    std::copy_n(entry.keys.data() + head * ring_.key_dim, ring_.key_dim, ring() + ring_.keys(head, position_));
  for (uint32_t head = 0; head < ring_.heads; ++head) {
    ring()[ring_.decay(head, position_)] = entry.decays[head];
    if (position_ % kRingTokens < kRingTokens - 1)
      std::copy_n(entry.values.data() + head * ring_.value_dim, ring_.value_dim,
                  ring() + ring_.values(head, position_));
  }
  ++position_;
  if (position_ % kRingTokens == 0) {
    std::ranges::copy(state_, record_.data());
    record_.save(position_ - row_->start, ring_.matrix_numbers());
  }
  if (position_ == row_->start + row_->num_tokens) leave();
}

// The numbers that count, and no others: kernels leave those alone.
void RingState::leave() {
  const uint32_t base = base_of(position_), first = record_.is_own() ? std::max(base, row_->start) : base;
  std::vector<double> numbers = record_.load(record_.own());
  const auto take = [&](uint64_t begin, uint64_t count) {
    std::copy_n(record_.data() + begin, count, numbers.data() + begin);
  };
  if (base > 0 && (base > row_->start || !record_.is_own())) take(0, ring_.matrix_numbers());
  for (uint32_t p = first; p < position_; ++p) {
    for (uint32_t head = 0; head < ring_.key_heads; ++head)
      take(ring_.matrix_numbers() + ring_.keys(head, p), ring_.key_dim);
    for (uint32_t head = 0; head < ring_.heads; ++head) {
      take(ring_.matrix_numbers() + ring_.values(head, p), ring_.value_dim);
      take(ring_.matrix_numbers() + ring_.decay(head, p), 1);
    }
  }
  record_.store(record_.own(), numbers, numbers.size());
}

}  // namespace llmrt::reference
