// Rows of ops with a state, and the records that hold it. Twins: core/ops/step_inputs.h RowRecord and StatePlace.
#include "step_inputs.glsl"

struct StateRow {
  uint start, num_tokens, token_first;
  uint places, places_end;  // words of the inputs
  uint own;                 // the record that it leaves its state in
};

// `tables`: of the group.
StateRow state_row(Words inputs, Words tables, uint blocks_row_max, uint row) {
  uint record = inputs.w[kFwdRows] + row * kRecordWords;
  StateRow found;
  uint slot = inputs.w[record];
  found.start = inputs.w[record + 1u];
  found.num_tokens = inputs.w[record + 2u];
  found.token_first = inputs.w[record + 3u];
  found.places = inputs.w[kFwdPlaces] + inputs.w[record + 5u] * kPlaceWords;
  found.places_end = found.places + inputs.w[record + 6u] * kPlaceWords;
  found.own = tables.w[slot * blocks_row_max];
  return found;
}

// The record that the row begins from, where it does not begin from zeros.
uint source_record(Words inputs, StateRow row, uint kv_group) {
  uint source = row.own;
  for (uint place = row.places; place < row.places_end; place += kPlaceWords)
    if (inputs.w[place] == kv_group && inputs.w[place + 2u] == row.start) source = inputs.w[place + 1u];
  return source;
}

// Whether the state is to be written to a place that is not the row's beginning.
bool is_written(Words inputs, StateRow row, uint kv_group, uint place) {
  return inputs.w[place] == kv_group && inputs.w[place + 2u] > row.start;
}

// Where the numbers of entries lie in a record's ring, behind its matrices, in vec4s. Twin: core/ops/recurrent_ops.h
// StateRing.
const uint kRingTokens = 16, kRingRowTokens = 4, kRingKeys = 20;
uint ring_keys(uint key_head, uint position, uint key_quads) {
  return (key_head * kRingKeys + position % kRingKeys) * key_quads;
}
uint ring_values(uint values_first, uint head, uint position, uint value_quads) {
  return values_first + (head * (kRingTokens - 1u) + position % kRingTokens) * value_quads;
}
// In numbers, from decays_first, which is in vec4s.
uint ring_decay(uint decays_first, uint head, uint position) {
  return decays_first * 4u + head * kRingKeys + position % kRingKeys;
}
