// States of recurrent layers as kernels see them: where the state of a row lies before its tokens, and where it goes
// behind them (core/ops/recurrent_ops.h, core/ops/step_inputs.h).
//
// A row's state before its first token, tables and records are read ahead of the wait for the kernel before: earlier
// steps wrote them, or kernels that begin with grid_dependency_wait_alone(), and only the row's own threads write what
// they have read, or a kernel behind theirs.
#pragma once

#include "backends/cuda/activation.cuh"
#include "backends/cuda/compile_inputs.h"
#include "backends/cuda/op_context.h"
#include "backends/cuda/step_inputs.cuh"
#include "core/ops/recurrent_ops.h"

namespace llmrt::cuda {

// An op's state in the records of one layer. Passed to kernels by value.
struct StateRecords {
  const uint32_t* inputs = nullptr;
  const int32_t* tables = nullptr;  // of the group
  float* numbers = nullptr;         // of the layer, from the op's first on
  uint32_t slots_max = 0, blocks_row_max = 0;
  uint32_t num_records = 0, record_numbers = 0, kv_group = 0;

  // Null: no such record.
  __device__ float* record(uint32_t id) const {
    return id < num_records ? numbers + uint64_t{id} * record_numbers : nullptr;
  }
  __device__ float* own(const RowRecord& row) const {
    if (row.slot >= slots_max) return nullptr;
    return record(static_cast<uint32_t>(tables[uint64_t{row.slot} * blocks_row_max]));
  }
  // Where the state before the row's first token lies; null: it is 0.
  __device__ const float* source(const RowRecord& row) const {
    if (row.start == 0) return nullptr;
    const StatePlace* places = input_array<StatePlace>(inputs, kFwdPlaces);
    for (uint32_t i = row.places_first; i < row.places_first + row.num_places; ++i) {
      if (places[i].position > row.start) break;
      if (places[i].kv_group == kv_group) return record(places[i].record);
    }
    return own(row);
  }
};

// The places behind the start of a row at which its state is saved, in the order of their positions.
class StateSaves {
 public:
  __device__ StateSaves(const StateRecords& states, const RowRecord& row) : states_(states), start_(row.start) {
    const StatePlace* places = input_array<StatePlace>(states.inputs, kFwdPlaces);
    next_ = places + row.places_first;
    end_ = next_ + row.num_places;
    skip_others();
  }
  // Where the next one is; kNone if there is none.
  __device__ uint32_t position() const { return position_; }
  // Its record, then on to the one behind.
  __device__ float* take() {
    float* record = states_.record(next_->record);
    ++next_;
    skip_others();
    return record;
  }
  static constexpr uint32_t kNone = 0xffffffffu;

 private:
  __device__ void skip_others() {
    while (next_ < end_ && (next_->kv_group != states_.kv_group || next_->position <= start_)) ++next_;
    position_ = next_ < end_ ? next_->position : kNone;
  }

  const StateRecords& states_;
  const StatePlace *next_, *end_;
  uint32_t start_, position_ = kNone;
};

// What is wrong with the group that an op names, as the host knows it.
inline Status check_state(const char* op, const StatePart& part, const CompileInputs& inputs, bool may_have_ring) {
  if (part.kv_group >= inputs.pools.size() || !inputs.pools[part.kv_group].is_state())
    return make_error(ErrorCode::kInvalidArgument, "{}: kv_group {}: expected a group of states", op, part.kv_group);
  if (part.ring_tokens != 0 && !(may_have_ring && part.ring_tokens == kRingTokens))
    return make_error(ErrorCode::kUnsupported, "{}: ring_tokens: expected {}, found {}", op,
                      may_have_ring ? "0 or 16" : "0", part.ring_tokens);
  return {};
}

inline StateRecords state_records(const StatePart& part, const OpContext& at) {
  const KvPool& pool = at.pools[part.kv_group];
  StateRecords states;
  states.inputs = at.forward_inputs;
  states.tables = at.rows.tables_of(part.kv_group);
  states.numbers = reinterpret_cast<float*>(pool.device.data + part.layer * pool.device.layer_bytes) + part.first;
  states.slots_max = at.rows.slots_max;
  states.blocks_row_max = at.rows.blocks_row_max;
  states.num_records = pool.device.num_blocks;
  states.record_numbers = pool.group.state_columns;
  states.kv_group = part.kv_group;
  return states;
}

// Columns of a tensor as kernels read them. Passed to kernels by value.
struct ColumnsIn {
  const float* first = nullptr;  // of the first token; null: there are none
  uint32_t stride = 0;           // from one token to the next

  __device__ const float* of(uint32_t token) const { return first + uint64_t{token} * stride; }
};
inline ColumnsIn columns_in(const Columns& part, const OpContext& at) {
  if (part.tensor == kNoTensor) return {};
  return {at.tensor<float>(part.tensor) + part.first, at.desc(part.tensor).columns};
}
// Whether four neighbours can be read in one access, from multiples of 4 on.
inline bool has_whole_fours(const Columns& part, const OpList& list) {
  if (part.tensor == kNoTensor) return true;
  return part.first % 4 == 0 && list.tensors[static_cast<size_t>(part.tensor)].columns % 4 == 0;
}

}  // namespace llmrt::cuda
