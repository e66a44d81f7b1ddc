// running_sum: the tokens of each row in their order, from the state in the row's record; at position 0 from zeros.
#include <algorithm>

#include "tests/reference/machine.h"

namespace llmrt::reference {

Status run(Machine& m, const RunningSum& op) {
  KvPool& pool = m.pools[op.kv_group];
  const Tensor& x = m.tensor(op.x);
  Tensor& out = m.tensor(op.out);
  for (const RowRecord& row : m.forward.rows) {
    const int32_t record = m.slots[row.slot].tables[op.kv_group][0];
    if (record < 0 || static_cast<uint32_t>(record) >= pool.group.num_blocks)
      return make_error(ErrorCode::kInvalidArgument, "running_sum: slot {}: expected a record below {}, found {}",
                        row.slot, pool.group.num_blocks, record);
    std::vector<double> state = pool.load_state(op.layer, static_cast<uint32_t>(record));
    if (row.start == 0) std::ranges::fill(state, 0.0);
    for (uint32_t t = row.token_first; t < row.token_first + row.num_tokens; ++t) {
      for (uint32_t c = 0; c < out.columns; ++c) {
        state[c] += x.row(t)[c];
        out.set(t, c, state[c]);
      }
    }
    pool.store_state(op.layer, static_cast<uint32_t>(record), state);
  }
  return {};
}

}  // namespace llmrt::reference
