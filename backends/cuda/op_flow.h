// The flow of data in a list: which op wrote what another one reads, and what stands between them.
#pragma once

#include <vector>

#include "core/ops/op_list.h"

namespace llmrt::cuda {

class OpFlow {
 public:
  explicit OpFlow(const OpList& list);

  // The last op before `op` that writes the tensor, or -1.
  int writer_before(TensorId tensor, int op) const;
  // An op other than `consumer` that reads what `producer` wrote to the tensor, or -1.
  int other_reader(TensorId tensor, int producer, int consumer) const;
  // A tensor that keeps `producer` from running behind `op`: one writes what the other touches. kNoTensor: none.
  TensorId in_the_way(int producer, int op) const;
  // Where `op` is one that passes numbers on (add, scale): the op that is_wanted() accepts and whose result comes to it
  // through such ops alone, or -1.
  template <class Wanted>
  int find_behind(int op, const Wanted& is_wanted) const {
    if (!passes_on(op)) return -1;
    for (TensorId read : touched_[static_cast<size_t>(op)].reads) {
      const int writer = writer_before(read, op);
      if (writer < 0) continue;
      if (is_wanted(writer)) return writer;
      if (const int found = find_behind(writer, is_wanted); found >= 0) return found;
    }
    return -1;
  }

 private:
  bool passes_on(int op) const;

  const OpList& list_;
  std::vector<OpAccess> touched_;                    // by op
  std::vector<std::vector<int>> writers_, readers_;  // by tensor, ascending
};

}  // namespace llmrt::cuda
