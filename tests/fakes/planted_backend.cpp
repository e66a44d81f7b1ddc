#include "tests/fakes/planted_backend.h"

#include <algorithm>
#include <utility>

namespace llmrt::test {

const char* bug_name(Bug bug) {
  constexpr const char* kNames[kNumBugs] = {"none",
                                            "a decoding row's position is one too far",
                                            "chunks restart at position 0",
                                            "positions are shifted after a preemption",
                                            "two rows swap their slots",
                                            "the device keeps a stale table",
                                            "row updates are lost",
                                            "a row's first block is another row's",
                                            "a block is handed out while it is held",
                                            "the last key is not looked at",
                                            "a key is not written",
                                            "a row is fed an old token",
                                            "two sampled rows are swapped"};
  return kNames[static_cast<int>(bug)];
}

void PlantedBackend::plant(Bug bug) {
  bug_ = bug;
  num_planted_ = num_steps_ = 0;
  slots_.clear();
  first_chunks_.clear();
  resumed_.clear();
}

Status PlantedBackend::create_kv_pools(std::span<const KvGroup> groups) {
  group_ = groups[0];
  return inner().create_kv_pools(groups);
}

Result<Ticket> PlantedBackend::submit(const StepSubmission& step) {
  if (bug_ == Bug::kNone || !step.forward) return inner().submit(step);
  ++num_steps_;
  Result<ForwardInputs> forward = unpack_forward(step.forward_inputs);
  if (!forward) return forward.error();
  Result<SampleInputs> sample = SampleInputs{};
  if (step.sample) sample = unpack_sample(step.sample_inputs);
  if (!sample) return sample.error();
  spoil_updates(&*forward);
  spoil_rows(&*forward);
  spoil_samples(&*sample);
  Result<std::vector<Saved>> saved = save_block(*forward);
  if (!saved) return saved.error();

  std::vector<uint32_t> forward_words, sample_words;
  pack(*forward, &forward_words);
  pack(*sample, &sample_words);
  StepSubmission spoiled = step;
  spoiled.forward_inputs = forward_words;
  if (step.sample) spoiled.sample_inputs = sample_words;
  Result<Ticket> ticket = inner().submit(spoiled);
  if (!ticket) return ticket.error();
  if (Status status = restore(*saved); !status) return status.error();
  return *ticket;
}

// ---- row updates ---------------------------------------------------------------------------------------------------

void PlantedBackend::spoil_updates(ForwardInputs* in) {
  // A table entry that is lost reads as block 0: what a device would find there may lie outside the pool.
  const bool lose_all = bug_ == Bug::kUpdatesLost && num_steps_ % 3 == 0;
  for (const RowUpdate& update : in->row_updates) {
    if (update.kind != RowUpdateKind::kPatchTable) continue;
    if (!lose_all && !(bug_ == Bug::kTableStale && update.arg0 > 0)) continue;
    std::fill_n(in->row_payload.begin() + update.payload_first, update.payload_words, 0u);
    ++num_planted_;
  }
  if (lose_all) std::erase_if(in->row_updates, [](const RowUpdate& u) { return u.kind == RowUpdateKind::kSet; });
  for (const RowUpdate& update : in->row_updates) {
    if (update.kind == RowUpdateKind::kPatchTable) spoil_table(update, in);
    if (update.kind == RowUpdateKind::kSet || update.kind == RowUpdateKind::kClear) slots_[update.slot] = {};
  }
}

void PlantedBackend::spoil_table(const RowUpdate& update, ForwardInputs* in) {
  uint32_t* blocks = in->row_payload.data() + update.payload_first;
  const auto other = std::find_if(slots_.begin(), slots_.end(), [&](const auto& entry) {
    return entry.first != update.slot && !entry.second.table.empty();
  });
  if (other != slots_.end()) {
    const bool first = update.arg0 == 0;
    if (bug_ == Bug::kPrefixOfAnother && first) blocks[0] = other->second.table.front();
    if (bug_ == Bug::kBlockTwice && !first) blocks[0] = other->second.table.back();
    num_planted_ += bug_ == Bug::kPrefixOfAnother ? first : bug_ == Bug::kBlockTwice && !first;
  }
  std::vector<uint32_t>& table = slots_[update.slot].table;
  table.resize(std::max<size_t>(table.size(), update.arg0 + update.payload_words));
  std::copy_n(blocks, update.payload_words, table.begin() + update.arg0);
}

// ---- rows ----------------------------------------------------------------------------------------------------------

// A row that begins with tokens that another one began with: the prompts of the test differ early.
bool PlantedBackend::is_resumed(const RowRecord& row, const ForwardInputs& in) {
  if (row.start > 0) return resumed_[row.slot];
  const auto begin = in.tokens.begin() + row.token_first;
  return resumed_[row.slot] = first_chunks_[std::vector<int32_t>(begin, begin + std::min(row.num_tokens, 4u))]++ > 0;
}

void PlantedBackend::spoil_rows(ForwardInputs* in) {
  for (RowRecord& row : in->rows) {
    const bool decodes = row.num_tokens == 1 && row.start > 0;
    const bool resumed = is_resumed(row, *in);
    int32_t& token = in->tokens[row.token_first];
    const int32_t fed_before = std::exchange(slots_[row.slot].token, in->tokens[row.token_first + row.num_tokens - 1]);
    bool planted = true;
    if (bug_ == Bug::kPositionLate && decodes)
      ++row.start;
    else if (bug_ == Bug::kChunkRestarts && !decodes && row.start > 0)
      row.start = 0;
    else if (bug_ == Bug::kResumedShift && resumed && row.start > 0)
      row.start += 5;
    else if (bug_ == Bug::kOldToken && decodes && fed_before >= 0)
      token = fed_before;
    else
      planted = false;
    num_planted_ += planted;
  }
  if (bug_ == Bug::kSlotsSwapped && in->rows.size() > 1) {
    std::swap(in->rows[0].slot, in->rows[1].slot);
    ++num_planted_;
  }
  if (bug_ != Bug::kKeysShort) return;
  for (AttentionItem& item : in->attention[0].decode_items) {
    if (item.key_end != item.position_first + 1 || item.key_end - item.key_begin < 2) continue;
    --item.key_end;
    ++num_planted_;
  }
}

void PlantedBackend::spoil_samples(SampleInputs* in) {
  if (bug_ != Bug::kSamplesSwapped || in->records.size() < 2) return;
  std::swap(in->records[0].token_idx, in->records[1].token_idx);
  ++num_planted_;
}

// ---- keys ----------------------------------------------------------------------------------------------------------

Result<std::vector<PlantedBackend::Saved>> PlantedBackend::save_block(const ForwardInputs& in) {
  std::vector<Saved> saved;
  if (bug_ != Bug::kKeyNotWritten) return saved;
  const auto row =
      std::find_if(in.rows.begin(), in.rows.end(), [](const RowRecord& r) { return r.num_tokens == 1 && r.start > 0; });
  if (row == in.rows.end()) return saved;
  const uint32_t block = slots_[row->slot].table[row->start / group_.block_tokens];
  for (uint32_t layer = 0; layer < group_.num_layers; ++layer) {
    Saved entry{layer, block,
                std::vector<std::byte>(group_.data_bytes_block_layer() + group_.scale_bytes_block_layer())};
    if (Status status = inner().read_kv(0, layer, block, entry.bytes); !status) return status.error();
    saved.push_back(std::move(entry));
  }
  ++num_planted_;
  return saved;
}

Status PlantedBackend::restore(const std::vector<Saved>& saved) {
  for (const Saved& entry : saved)
    if (Status status = inner().write_kv(0, entry.layer, entry.block, entry.bytes); !status) return status;
  return {};
}

}  // namespace llmrt::test
