#include "tests/reference/row_state.h"

#include <algorithm>

namespace llmrt::reference {

Result<RowState> RowState::begin(Machine& machine, const RowRecord& row, uint32_t kv_group, uint32_t layer,
                                 uint64_t first, uint64_t count) {
  KvPool& pool = machine.pools[kv_group];
  RowState state(machine, row, pool);
  const int32_t own = machine.slots[row.slot].tables[kv_group][0];
  if (own < 0 || static_cast<uint32_t>(own) >= pool.group.num_blocks)
    return make_error(ErrorCode::kInvalidArgument, "state: slot {}: expected a record below {}, found {}", row.slot,
                      pool.group.num_blocks, own);
  state.kv_group_ = kv_group;
  state.layer_ = layer;
  state.own_ = static_cast<uint32_t>(own);
  state.first_ = first;
  state.numbers_.assign(count, 0.0);
  state.source_ = state.own_;
  if (row.start == 0) return state;
  for (uint32_t i = row.places_first; i < row.places_first + row.num_places; ++i) {
    const StatePlace& place = machine.forward.state_places[i];
    if (place.kv_group == kv_group && place.position == row.start) state.source_ = place.record;
  }
  const std::vector<double> record = pool.load_state(layer, state.source_);
  std::copy_n(record.begin() + static_cast<std::ptrdiff_t>(first), count, state.numbers_.begin());
  return state;
}

void RowState::advance(uint32_t num_tokens) {
  save(num_tokens, numbers_.size());
  if (num_tokens == row_->num_tokens) store(own_, numbers_, numbers_.size());
}

void RowState::save(uint32_t num_tokens, size_t count) {
  for (const uint32_t record : places_behind(num_tokens)) store(record, numbers_, count);
}

std::vector<uint32_t> RowState::places_behind(uint32_t num_tokens) const {
  std::vector<uint32_t> records;
  for (uint32_t i = row_->places_first; i < row_->places_first + row_->num_places; ++i) {
    const StatePlace& place = machine_->forward.state_places[i];
    if (place.kv_group == kv_group_ && place.position > row_->start && place.position == row_->start + num_tokens)
      records.push_back(place.record);
  }
  return records;
}

std::vector<double> RowState::load(uint32_t record) const {
  const std::vector<double> all = pool_->load_state(layer_, record);
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first_);
  return {begin, begin + static_cast<std::ptrdiff_t>(numbers_.size())};
}

void RowState::store(uint32_t record, const std::vector<double>& numbers, size_t count) {
  std::vector<double> all = pool_->load_state(layer_, record);
  std::copy_n(numbers.begin(), count, all.begin() + static_cast<std::ptrdiff_t>(first_));
  pool_->store_state(layer_, record, all);
}

}  // namespace llmrt::reference
