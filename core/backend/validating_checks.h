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
};

enum class Part { kMemory, kForward, kSample };

Status check_list(const Limits& limits, const OpList& list, Part part);
// Either list may be null. Also applies the row updates to the mirrored slots, when everything else is right.
Status check_forward_inputs(Limits& limits, const OpList* memory, const OpList* forward, const ForwardInputs& inputs);
// `num_tokens`: live tokens of the forward part of the same step, or step_tokens_max without one.
Status check_sample_inputs(const Limits& limits, const OpList& list, const SampleInputs& inputs, uint32_t num_tokens);

// The first thing that is wrong. Every check says where (op or array), which field, what was expected and found.
class Report {
 public:
  template <typename Expected, typename Found>
  void fail(const std::string& where, const std::string& field, const Expected& expected, const Found& found) {
    if (ok())
      status_ = make_error(ErrorCode::kInvalidArgument, "{}: {}: expected {}, found {}", where, field, expected, found);
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
