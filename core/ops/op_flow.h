// The flow of data in a list: which ops touch a tensor, which op wrote what another one reads, and what stands between
// them. It is the structure alone, whatever the device: backends look in it for ops that they may run as one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/ops/op_list.h"

namespace llmrt {

class OpFlow {
 public:
  explicit OpFlow(const OpList& list);  // the list outlives it

  const OpList& list() const { return list_; }
  // The op if it is a T, else null.
  template <class T>
  const T* get(uint32_t op) const {
    return std::get_if<T>(&list_.ops[op]);
  }
  const OpAccess& access_of(uint32_t op) const { return accesses_[op]; }

  // The ops behind `op` that read or write the tensor, in order.
  std::span<const uint32_t> users_behind(TensorId tensor, uint32_t op) const;
  // The last op before `op` that writes the tensor, or -1.
  int writer_before(TensorId tensor, uint32_t op) const;
  // An op other than `consumer` that reads what `producer` wrote to the tensor, or -1.
  int other_reader(TensorId tensor, uint32_t producer, uint32_t consumer) const;
  // A tensor that keeps `producer` from running behind `op`: one writes what the other touches. kNoTensor: none.
  TensorId in_the_way(uint32_t producer, uint32_t op) const;

  // Whether an op hands on what it reads, changed, as add and scale do, and so may stand in a pattern's way. All ops to
  // come do, until they are named among those that make something new.
  bool passes_on(uint32_t op) const;
  // Where `op` passes on what it reads: the op that is_wanted() accepts and whose result comes to it through such ops
  // alone, or -1.
  template <class Wanted>
  int find_behind(uint32_t op, const Wanted& is_wanted) const {
    if (!passes_on(op)) return -1;
    for (const TensorId read : accesses_[op].reads) {
      const int writer = writer_before(read, op);
      if (writer < 0) continue;
      if (is_wanted(writer)) return writer;
      if (const int found = find_behind(static_cast<uint32_t>(writer), is_wanted); found >= 0) return found;
    }
    return -1;
  }

 private:
  const OpList& list_;
  std::vector<OpAccess> accesses_;                                // by op
  std::vector<std::vector<uint32_t>> users_, writers_, readers_;  // by tensor, ascending
};

}  // namespace llmrt
