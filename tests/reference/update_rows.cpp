// update_rows: the step's commands, in order. kSet keeps the slot's tables; kPatchTable and kClear are the ways to
// change them. kCopySlot copies the parameters (the number of the penalty row among them), the last token and the
// tables.
#include <algorithm>
#include <cstring>

#include "tests/reference/machine.h"

namespace llmrt::reference {
namespace {

Status bad(const char* field, uint64_t value, uint64_t limit) {
  return make_error(ErrorCode::kInvalidArgument, "update_rows: {}: expected below {}, found {}", field, limit, value);
}

Status recount(Machine& m, const RowUpdate& update, const uint32_t* payload) {
  if (update.arg0 >= m.penalty_counts.size()) return bad("penalty slot", update.arg0, m.penalty_counts.size());
  PenaltyCounts& counts = m.penalty_counts[update.arg0];
  std::fill(counts.prompt.begin(), counts.prompt.end(), 0);
  std::fill(counts.output.begin(), counts.output.end(), 0);
  for (uint32_t i = 0; i < update.payload_words; ++i) {
    if (payload[i] >= m.state.vocab_size) return bad("counted token", payload[i], m.state.vocab_size);
    ++(i < update.arg1 ? counts.prompt : counts.output)[payload[i]];
  }
  return {};
}

Status count(Machine& m, const RowUpdate& update, const uint32_t* payload) {
  if (update.arg0 >= m.penalty_counts.size()) return bad("penalty slot", update.arg0, m.penalty_counts.size());
  for (uint32_t i = 0; i < update.payload_words; ++i) {
    if (payload[i] >= m.state.vocab_size) return bad("counted token", payload[i], m.state.vocab_size);
    ++m.penalty_counts[update.arg0].output[payload[i]];
  }
  return {};
}

}  // namespace

Status run(Machine& m, const UpdateRows&) {
  for (const RowUpdate& update : m.forward.row_updates) {
    if (update.slot >= m.slots.size()) return bad("slot", update.slot, m.slots.size());
    Slot& slot = m.slots[update.slot];
    const uint32_t* payload = m.forward.row_payload.data() + update.payload_first;
    switch (update.kind) {
      case RowUpdateKind::kSet:
        std::memcpy(static_cast<void*>(&slot.sampling), payload, sizeof(RowSampling));
        slot.last_token = -1;
        break;
      case RowUpdateKind::kPatchTable:
        if (update.arg1 >= slot.tables.size()) return bad("kv group", update.arg1, slot.tables.size());
        if (update.arg0 + uint64_t{update.payload_words} > m.state.blocks_row_max)
          return bad("table entry", update.arg0 + uint64_t{update.payload_words} - 1, m.state.blocks_row_max);
        std::copy_n(payload, update.payload_words, slot.tables[update.arg1].begin() + update.arg0);
        break;
      case RowUpdateKind::kCopySlot:
        if (update.arg0 >= m.slots.size()) return bad("source slot", update.arg0, m.slots.size());
        slot = Slot(m.slots[update.arg0]);
        break;
      case RowUpdateKind::kRecount:
        if (Status status = recount(m, update, payload); !status) return status;
        break;
      case RowUpdateKind::kCount:
        if (Status status = count(m, update, payload); !status) return status;
        break;
      case RowUpdateKind::kClear:
        slot.sampling = {};
        slot.last_token = -1;
        for (auto& table : slot.tables) std::fill(table.begin(), table.end(), -1);
        break;
    }
  }
  return {};
}

}  // namespace llmrt::reference
