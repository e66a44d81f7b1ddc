// prepare_rows: what each token of the step is, where it stands and where its keys and values go, in each KV group. A
// token that is "the one sampled last" of a slot that has sampled nothing (its draw was an error) becomes token 0: its
// row is about to end.
#include <algorithm>

#include "tests/reference/machine.h"

namespace llmrt::reference {
namespace {

// The place of a position in the group's pool; -1 where there is no pool.
Result<double> kv_slot_of(const Machine& m, uint32_t group, uint32_t slot_idx, uint32_t position) {
  if (group >= m.pools.size()) return -1.0;
  const std::vector<int32_t>& table = m.slots[slot_idx].tables[group];
  const uint32_t block_tokens = m.pools[group].group.block_tokens, entry = position / block_tokens;
  if (entry >= table.size() || table[entry] < 0)
    return make_error(ErrorCode::kInvalidArgument, "prepare_rows: slot {} has no block of group {} for position {}",
                      slot_idx, group, position);
  return static_cast<double>(table[entry]) * block_tokens + position % block_tokens;
}

}  // namespace

Status run(Machine& m, const PrepareRows& op) {
  const uint32_t live = m.live(op.tokens), rows = m.tensor(op.tokens).rows;
  for (uint32_t t = 0; t < rows; ++t) {
    double token = 0, position = 0, slot_idx = -1;
    double kv_slots[kKvGroupsMax] = {-1, -1, -1, -1};
    if (t < live) {
      const RowRecord& row = m.forward.rows[m.forward.token_rows[t]];
      const int32_t given = m.forward.tokens[t];
      token = given == kLastSampled ? std::max(m.slots[row.slot].last_token, 0) : given;
      position = row.start + (t - row.token_first);
      slot_idx = row.slot;
      for (uint32_t g = 0; g < kKvGroupsMax; ++g) {
        if (op.kv_slots[g] == kNoTensor) continue;
        auto kv_slot = kv_slot_of(m, g, row.slot, static_cast<uint32_t>(position));
        if (!kv_slot) return kv_slot.error();
        kv_slots[g] = *kv_slot;
      }
    }
    m.tensor(op.tokens).set(t, 0, token);
    m.tensor(op.positions).set(t, 0, position);
    m.tensor(op.row_slots).set(t, 0, slot_idx);
    for (uint32_t g = 0; g < kKvGroupsMax; ++g)
      if (op.kv_slots[g] != kNoTensor) m.tensor(op.kv_slots[g]).set(t, 0, kv_slots[g]);
  }
  return {};
}

}  // namespace llmrt::reference
