// running_sum: the tokens of each row in their order, from the state in the row's record; at position 0 from zeros.
#include "tests/reference/row_state.h"

namespace llmrt::reference {

Status run(Machine& m, const RunningSum& op) {
  const Tensor& x = m.tensor(op.x);
  Tensor& out = m.tensor(op.out);
  for (const RowRecord& row : m.forward.rows) {
    auto state = RowState::begin(m, row, op.kv_group, op.layer, 0, out.columns);
    if (!state) return state.error();
    for (uint32_t i = 0; i < row.num_tokens; ++i) {
      const uint32_t t = row.token_first + i;
      for (uint32_t c = 0; c < out.columns; ++c) {
        (*state)[c] += x.row(t)[c];
        out.set(t, c, (*state)[c]);
      }
      state->advance(i + 1);
    }
  }
  return {};
}

}  // namespace llmrt::reference
