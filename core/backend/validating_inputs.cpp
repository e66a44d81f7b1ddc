// A step's inputs: every index inside its array, every count inside the bucket, and the arrays in agreement.
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "core/backend/validating_checks.h"

namespace llmrt::validating {
namespace {

struct ForwardChecker {
  Limits& limits;
  const OpList* memory;
  const OpList& list;
  const ForwardInputs& in;
  Report report = {};
  std::vector<SlotMirror> slots = limits.slots;  // after the step's updates

  uint32_t block_tokens() const { return limits.groups.empty() ? 1 : limits.groups[0].block_tokens; }
  uint32_t num_blocks() const {
    uint32_t count = ~0u;
    for (const KvGroup& group : limits.groups) count = std::min(count, group.num_blocks);
    return count;
  }

  void check_sampling(const std::string& where, const RowSampling& s) {
    if (s.flags & ~uint32_t{kRowProcessed}) report.fail(where, "flags", "known ones", s.flags);
    if (!(s.temperature >= 0) || std::isinf(s.temperature))
      report.fail(where, "temperature", "0 or more", s.temperature);
    if (!(s.top_p >= 0 && s.top_p <= 1)) report.fail(where, "top_p", "0 to 1", s.top_p);
    if (!(s.min_p >= 0 && s.min_p <= 1)) report.fail(where, "min_p", "0 to 1", s.min_p);
    if (!(s.repetition_penalty > 0) || std::isinf(s.repetition_penalty))
      report.fail(where, "repetition_penalty", "above 0", s.repetition_penalty);
    if (!std::isfinite(s.presence_penalty))
      report.fail(where, "presence_penalty", "a finite number", s.presence_penalty);
    if (!std::isfinite(s.frequency_penalty))
      report.fail(where, "frequency_penalty", "a finite number", s.frequency_penalty);
    if (s.flags & kRowPenalties) report.below(where, "penalty_slot", s.penalty_slot, limits.state.penalty_rows_max);
  }

  void apply(const std::string& where, const RowUpdate& update) {
    SlotMirror& slot = slots[update.slot];
    const uint32_t* payload = in.row_payload.data() + update.payload_first;
    switch (update.kind) {
      case RowUpdateKind::kSet:
        if (update.payload_words != sizeof(RowSampling) / 4) {
          report.fail(where, "payload_words", sizeof(RowSampling) / 4, update.payload_words);
          return;
        }
        std::memcpy(static_cast<void*>(&slot.sampling), payload, sizeof(RowSampling));
        return check_sampling(where, slot.sampling);
      case RowUpdateKind::kPatchTable:
        if (!report.at_most(where, "table entries", uint64_t{update.arg0} + update.payload_words,
                            limits.state.blocks_row_max))
          return;
        for (uint32_t i = 0; i < update.payload_words; ++i) {
          report.below(where, "block", payload[i], num_blocks());
          slot.table[update.arg0 + i] = static_cast<int32_t>(payload[i]);
        }
        return;
      case RowUpdateKind::kCopySlot:
        if (report.below(where, "arg0 (source slot)", update.arg0, slots.size())) slot = SlotMirror(slots[update.arg0]);
        return;
      case RowUpdateKind::kRecount:
        report.below(where, "arg0 (penalty slot)", update.arg0, limits.state.penalty_rows_max);
        report.at_most(where, "arg1 (prompt tokens)", update.arg1, update.payload_words);
        for (uint32_t i = 0; i < update.payload_words; ++i)
          report.below(where, "token", payload[i], limits.state.vocab_size);
        return;
      case RowUpdateKind::kClear:
        slot = {{}, std::vector<int32_t>(limits.state.blocks_row_max, -1)};
        return;
    }
    report.fail(where, "kind", "a RowUpdateKind", static_cast<uint32_t>(update.kind));
  }

  void check_updates() {
    if (!in.row_updates.empty() && !has_op<UpdateRows>(list))
      report.fail("forward inputs", "row_updates", "none without update_rows in the list", in.row_updates.size());
    for (size_t i = 0; i < in.row_updates.size() && report.ok(); ++i) {
      const RowUpdate& update = in.row_updates[i];
      const std::string where = fmt::format("update_rows: update {}", i);
      if (report.below(where, "slot", update.slot, slots.size()) &&
          report.at_most(where, "payload", uint64_t{update.payload_first} + update.payload_words,
                         in.row_payload.size()))
        apply(where, update);
    }
  }

  // The moves of one op run side by side: none may read what another writes.
  template <class OpType>
  void check_moves(const char* array, const std::vector<BlockCopy>& moves, uint32_t sources_end, uint32_t targets_end) {
    const std::string name = op_name(Op{OpType{}});
    if (!moves.empty() && !(memory && has_op<OpType>(*memory)))
      report.fail("forward inputs", array, fmt::format("none without {} in a memory list", name), moves.size());
    const bool whole = !std::is_same_v<OpType, CopyBlocks>;
    std::unordered_set<uint32_t> sources, targets;
    for (size_t i = 0; i < moves.size(); ++i) {
      const BlockCopy& move = moves[i];
      const std::string where = fmt::format("{}: {}[{}]", name, array, i);
      report.below(where, "source", move.source, sources_end);
      report.below(where, "target", move.target, targets_end);
      const uint32_t least = whole ? block_tokens() : 1;
      if (move.num_tokens < least || move.num_tokens > block_tokens())
        report.fail(where, "num_tokens", fmt::format("{} to {}", least, block_tokens()), move.num_tokens);
      sources.insert(move.source);
      if (!targets.insert(move.target).second)
        report.fail(where, "target", "a block that is written once", move.target);
    }
    for (uint32_t target : targets)
      if (!whole && sources.contains(target)) report.fail(name, "target", "not a source of the step", target);
  }

  void check_memory() {
    const uint32_t num_host = limits.groups.empty() ? 0 : limits.groups[0].num_host_blocks;
    check_moves<StoreBlocks>("block_stores", in.block_stores, num_blocks(), num_host);
    check_moves<LoadBlocks>("block_loads", in.block_loads, num_host, num_blocks());
    check_moves<CopyBlocks>("block_copies", in.block_copies, num_blocks(), num_blocks());
  }

  void check_rows() {
    const uint32_t num_tokens = static_cast<uint32_t>(in.tokens.size());
    report.at_most("forward inputs", "tokens", num_tokens, list.num_tokens);
    if (in.token_rows.size() != in.tokens.size())
      report.fail("forward inputs", "token_rows", in.tokens.size(), in.token_rows.size());
    uint32_t next_token = 0;
    std::unordered_set<uint32_t> used;
    for (uint32_t r = 0; r < in.rows.size() && report.ok(); ++r) {
      const RowRecord& row = in.rows[r];
      const std::string where = fmt::format("rows[{}]", r);
      report.below(where, "slot", row.slot, slots.size());
      if (!used.insert(row.slot).second) report.fail(where, "slot", "a slot of one row", row.slot);
      if (row.num_tokens == 0) report.fail(where, "num_tokens", "at least 1", 0);
      if (row.token_first != next_token) report.fail(where, "token_first", next_token, row.token_first);
      if (row.adapter_id != 0) report.fail(where, "adapter_id", 0, row.adapter_id);
      if (!report.at_most(where, "tokens", uint64_t{row.token_first} + row.num_tokens, num_tokens)) return;
      for (uint32_t t = row.token_first; t < row.token_first + row.num_tokens; ++t)
        if (in.token_rows[t] != r) report.fail(fmt::format("token_rows[{}]", t), "row", r, in.token_rows[t]);
      next_token += row.num_tokens;
    }
    if (next_token != num_tokens) report.fail("rows", "tokens in all", num_tokens, next_token);
    for (uint32_t t = 0; t < num_tokens; ++t)
      if (in.tokens[t] != kLastSampled)
        report.below(fmt::format("tokens[{}]", t), "token", in.tokens[t], limits.state.vocab_size);
  }

  int32_t block_of(uint32_t slot, uint32_t position) const {
    const uint32_t entry = position / block_tokens();
    return entry < slots[slot].table.size() ? slots[slot].table[entry] : -1;
  }

  // Every token has a place of its own in the pool.
  void check_places() {
    if (limits.groups.empty() || !has_op<PrepareRows>(list)) return;
    const bool writes = has_op<KvWrite>(list);
    std::unordered_set<uint64_t> places;
    for (uint32_t r = 0; r < in.rows.size(); ++r) {
      const RowRecord& row = in.rows[r];
      if (!report.at_most(fmt::format("rows[{}]", r), "positions", uint64_t{row.start} + row.num_tokens,
                          uint64_t{limits.state.blocks_row_max} * block_tokens()))
        return;
      for (uint32_t position = row.start; position < row.start + row.num_tokens; ++position) {
        const int32_t block = block_of(row.slot, position);
        if (block < 0)
          return report.fail(fmt::format("rows[{}]", r), "block table",
                             fmt::format("a block for position {}", position), "none");
        const uint64_t place = static_cast<uint64_t>(block) * block_tokens() + position % block_tokens();
        if (writes && !places.insert(place).second)
          return report.fail(fmt::format("rows[{}]", r), "kv_slots", "a place that one token writes", place);
      }
    }
  }

  void check_item(const std::string& where, const AttentionItem& item, uint32_t tokens_max) {
    if (item.num_tokens == 0 || item.num_tokens > tokens_max)
      report.fail(where, "num_tokens", fmt::format("1 to {}", tokens_max), item.num_tokens);
    if (!report.below(where, "slot", item.slot, slots.size()) ||
        !report.at_most(where, "tokens", uint64_t{item.token_first} + item.num_tokens, in.tokens.size()))
      return;
    for (uint32_t i = 0; i < item.num_tokens && report.ok(); ++i) {
      const RowRecord& row = in.rows[in.token_rows[item.token_first + i]];
      if (row.slot != item.slot) report.fail(where, "slot", row.slot, item.slot);
      const uint32_t position = row.start + item.token_first + i - row.token_first;
      if (position != item.position_first + i) report.fail(where, "position_first", position - i, item.position_first);
    }
    if (item.key_begin > item.key_end)
      report.fail(where, "key_begin", fmt::format("at most {}", item.key_end), item.key_begin);
    report.at_most(where, "key_end", item.key_end, item.position_first + item.num_tokens);
    for (uint32_t key = item.key_begin; key < item.key_end && report.ok(); key += block_tokens() - key % block_tokens())
      if (block_of(item.slot, key) < 0)
        report.fail(where, "block table", fmt::format("a block for key {}", key), "none");
    if (item.partial >= 0)
      report.at_most(where, "partials",
                     uint64_t(item.partial) + (item.num_tokens - 1) * uint64_t{item.partial_stride} + 1,
                     limits.state.partials_max);
  }

  void check_items() {
    for (const Op& op : list.ops)
      if (const auto* attention = std::get_if<PagedAttention>(&op))
        if (attention->kv_group != 0) return;  // tables of further groups are not mirrored yet
    if (!has_op<PagedAttention>(list)) return;
    if (list.decode_only) report.at_most("prompt_items", "items of a decode-only list", in.prompt_items.size(), 0u);
    for (size_t i = 0; i < in.decode_items.size() && report.ok(); ++i) {
      const AttentionItem& item = in.decode_items[i];
      const std::string where = fmt::format("decode_items[{}]", i);
      check_item(where, item, kDecodeItemTokens);
      if (item.partial < 0 || !report.below(where, "merge_idx", item.merge_idx, in.merge_items.size())) continue;
      const MergeItem& merge = in.merge_items[item.merge_idx];
      const uint32_t partial = static_cast<uint32_t>(item.partial);
      if (partial < merge.partial_first || partial - merge.partial_first >= merge.num_partials)
        report.fail(where, "merge_idx", fmt::format("a merge of partial {}", partial), item.merge_idx);
    }
    for (size_t i = 0; i < in.prompt_items.size() && report.ok(); ++i)
      check_item(fmt::format("prompt_items[{}]", i), in.prompt_items[i], kPromptItemTokens);
    for (size_t i = 0; i < in.merge_items.size() && report.ok(); ++i) {
      const MergeItem& merge = in.merge_items[i];
      const std::string where = fmt::format("merge_items[{}]", i);
      report.below(where, "token", merge.token, in.tokens.size());
      if (merge.num_partials == 0) report.fail(where, "num_partials", "at least 1", 0);
      report.at_most(where, "partials", uint64_t{merge.partial_first} + merge.num_partials, limits.state.partials_max);
    }
  }
};

struct SampleChecker {
  const Limits& limits;
  const OpList& list;
  const SampleInputs& in;
  uint32_t num_tokens;
  Report report = {};

  void check_bias(const std::string& where, const SampleRecord& record, const RowSampling& s) {
    if (record.num_bias == 0) return;
    if (!(s.flags & kRowBias)) report.fail(where, "num_bias", "0 for a row without kRowBias", record.num_bias);
    if (!report.at_most(where, "bias entries", uint64_t{record.bias_first} + record.num_bias, in.bias_entries.size()))
      return;
    std::unordered_set<int32_t> tokens;
    for (uint32_t i = record.bias_first; i < record.bias_first + record.num_bias; ++i) {
      const BiasEntry& entry = in.bias_entries[i];
      report.below(where, "bias token", entry.token, limits.state.vocab_size);
      if (!tokens.insert(entry.token).second) report.fail(where, "bias token", "one entry a token", entry.token);
      if (!(entry.bias < INFINITY)) report.fail(where, "bias", "a finite number or -inf", entry.bias);
    }
  }

  void check_records() {
    std::unordered_set<uint32_t> slots;
    std::unordered_set<int32_t> penalty_slots;
    for (size_t r = 0; r < in.records.size() && report.ok(); ++r) {
      const SampleRecord& record = in.records[r];
      const std::string where = fmt::format("records[{}]", r);
      if (!report.below(where, "slot", record.slot, limits.slots.size())) return;
      const RowSampling& s = limits.slots[record.slot].sampling;
      report.below(where, "token_idx", record.token_idx, num_tokens);
      if (record.flags & ~uint32_t{kSampleForced | kSampleLogprobs | kSampleProcessed})
        report.fail(where, "flags", "known ones", record.flags);
      if (record.flags & kSampleForced) {
        report.below(where, "forced_token", record.forced_token, limits.state.vocab_size);
      } else if (has_op<Sample>(list)) {
        if (!slots.insert(record.slot).second) report.fail(where, "slot", "a slot that draws once", record.slot);
        if ((s.flags & kRowPenalties) && !penalty_slots.insert(s.penalty_slot).second)
          report.fail(where, "penalty_slot", "counts of one row", s.penalty_slot);
      }
      check_bias(where, record, s);
    }
  }
};

}  // namespace

Status check_forward_inputs(Limits& limits, const OpList* memory, const OpList* forward, const ForwardInputs& inputs) {
  const OpList none;
  ForwardChecker checker{limits, memory, forward ? *forward : none, inputs};
  checker.check_updates();
  checker.check_memory();
  checker.check_rows();
  if (checker.report.ok()) checker.check_places();
  if (checker.report.ok()) checker.check_items();
  if (checker.report.ok()) limits.slots = std::move(checker.slots);
  return checker.report.status();
}

Status check_sample_inputs(const Limits& limits, const OpList& list, const SampleInputs& inputs, uint32_t num_tokens) {
  SampleChecker checker{limits, list, inputs, num_tokens};
  checker.report.at_most("sample inputs", "records", inputs.records.size(), size_t{list.num_sampled});
  checker.check_records();
  return checker.report.status();
}

}  // namespace llmrt::validating
