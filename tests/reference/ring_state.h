// The state of one row that has a ring (core/ops/recurrent_ops.h) while an op walks the row's tokens: matrices with the
// ring's entries folded in, and what the row leaves in its record.
#pragma once

#include <vector>

#include "tests/reference/row_state.h"

namespace llmrt::reference {

// What a token gives: [key_heads][key_dim], [heads][value_dim], [heads].
struct RingEntry {
  std::vector<double> keys, values, decays;
};

class RingState {
 public:
  // key_head_of: by head.
  static Result<RingState> begin(Machine& machine, const RowRecord& row, const StatePart& part, const StateRing& ring,
                                 const std::vector<uint32_t>& key_head_of);

  double* data() { return state_.data(); }
  // data() has the next token, which gave `entry`.
  void advance(const RingEntry& entry);

 private:
  RingState(RowState record, const RowRecord& row, const StateRing& ring)
      : record_(std::move(record)), row_(&row), ring_(ring), position_(row.start) {}
  double* ring() { return record_.data() + ring_.matrix_numbers(); }
  void fold(const std::vector<uint32_t>& key_head_of);
  void leave();

  RowState record_;  // as it is when the row's tokens so far are its last
  const RowRecord* row_;
  StateRing ring_;
  uint32_t position_;
  std::vector<double> state_;
};

}  // namespace llmrt::reference
