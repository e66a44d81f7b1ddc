// prepare_rows: what each token of the step is, where it stands and where its key and value go. A token that is "the
// one sampled last" of a slot that has sampled nothing (its draw was an error) becomes token 0: its row is about to
// end.
#include <algorithm>

#include "tests/reference/machine.h"

namespace llmrt::reference {

Status run(Machine& m, const PrepareRows& op) {
  const uint32_t live = m.live(op.tokens), rows = m.tensor(op.tokens).rows;
  const KvGroup* group = m.pools.empty() ? nullptr : &m.pools[0].group;
  for (uint32_t t = 0; t < rows; ++t) {
    double token = 0, position = 0, slot_idx = -1, kv_slot = -1;
    if (t < live) {
      const RowRecord& row = m.forward.rows[m.forward.token_rows[t]];
      const Slot& slot = m.slots[row.slot];
      const int32_t given = m.forward.tokens[t];
      token = given == kLastSampled ? std::max(slot.last_token, 0) : given;
      position = row.start + (t - row.token_first);
      slot_idx = row.slot;
      if (group) {
        const uint64_t entry = static_cast<uint64_t>(position) / group->block_tokens;
        if (entry >= slot.table.size() || slot.table[entry] < 0)
          return make_error(ErrorCode::kInvalidArgument, "prepare_rows: slot {} has no block for position {}", row.slot,
                            position);
        kv_slot = static_cast<double>(slot.table[entry]) * group->block_tokens +
                  static_cast<double>(static_cast<uint64_t>(position) % group->block_tokens);
      }
    }
    m.tensor(op.tokens).set(t, 0, token);
    m.tensor(op.positions).set(t, 0, position);
    m.tensor(op.row_slots).set(t, 0, slot_idx);
    m.tensor(op.kv_slots).set(t, 0, kv_slot);
  }
  return {};
}

}  // namespace llmrt::reference
