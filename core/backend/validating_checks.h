// The checks behind validating.h, as functions of plain data.
#pragma once

#include <string>
#include <vector>

#include "core/backend/backend.h"

namespace llmrt::validating {

// What is known of a slot on the device.
struct SlotMirror {
  RowSampling sampling;
  std::vector<std::vector<int32_t>> tables;  // by KV group: block ids, -1 = none
};
SlotMirror empty_slot(const StateConfig& state);

// Everything that lists and inputs are checked against.
struct Limits {
  uint64_t range_bytes_max = 0;
  WeightTable weights;  // names and shapes only
  StateConfig state;
  std::vector<KvGroup> groups;
  std::vector<SlotMirror> slots;
  AdapterPoolConfig adapters;
  std::vector<AdapterEntry> adapter_table;  // as written: by slot, then by weight group
  DType adapter_dtype = DType::kF32;
};

enum class Part { kMemory, kForward, kSample };

Status check_list(const Limits& limits, const OpList& list, Part part);
// Items and rows of adapters against the pool's table, for the list whose rows they are of. slots_of_rows: the slot + 1
// that each of its rows has, 0 = none; empty: it is not known, and there are so many rows as `num_rows`.
Status check_adapters(const Limits& limits, const OpList& list, std::span<const AdapterItem> items,
                      std::span<const AdapterRow> rows, size_t num_rows, std::span<const uint32_t> slots_of_rows);
// Either list may be null. Also applies the row updates to the mirrored slots, when everything else is right.
Status check_forward_inputs(Limits& limits, const OpList* memory, const OpList* forward, const ForwardInputs& inputs);
// `num_tokens`: live tokens of the forward part of the same step, or step_tokens_max without one. token_slots: as
// slots_of_rows, of those tokens.
Status check_sample_inputs(const Limits& limits, const OpList& list, const SampleInputs& inputs, uint32_t num_tokens,
                           std::span<const uint32_t> token_slots);

// The first thing that is wrong. Every check says where (op or array), which field, what was expected and found.
class Report {
 public:
  template <typename Expected, typename Found>
  void fail(const std::string& where, const std::string& field, const Expected& expected, const Found& found) {
    if (ok())
      status_ = make_error(ErrorCode::kInvalidArgument, "{}: {}: expected {}, found {}", where, field, expected, found);
  }
  void fail(Status status) {
    if (ok()) status_ = std::move(status);
  }
  // value < limit
  template <typename Value, typename Limit>
  bool below(const std::string& where, const std::string& field, Value value, Limit limit) {
    const bool inside = value >= 0 && static_cast<uint64_t>(value) < static_cast<uint64_t>(limit);
    if (!inside) fail(where, field, fmt::format("below {}", limit), value);
    return inside;
  }
  template <typename Value, typename Limit>
  bool at_most(const std::string& where, const std::string& field, Value value, Limit limit) {
    if (value > limit) fail(where, field, fmt::format("at most {}", limit), value);
    return value <= limit;
  }
  bool ok() const { return status_.ok(); }
  Status status() const { return status_; }

 private:
  Status status_;
};

// Is there an op of type T in the list?
template <class T>
bool has_op(const OpList& list) {
  for (const Op& op : list.ops)
    if (std::holds_alternative<T>(op)) return true;
  return false;
}

}  // namespace llmrt::validating
