// A step's forward inputs: every index inside its array, every count inside the bucket, and the arrays in agreement.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "core/backend/validating_checks.h"
#include "core/sample/sampling_params.h"

namespace llmrt::validating {
namespace {

template <class OpType>
bool moves_group(const OpList& list, uint32_t group) {
  return std::ranges::any_of(list.ops, [&](const Op& op) {
    const OpType* move = std::get_if<OpType>(&op);
    return move && move->kv_group == group;
  });
}

struct ForwardChecker {
  Limits& limits;
  const OpList* memory;
  const OpList& list;
  const ForwardInputs& in;
  Report report = {};
  std::vector<SlotMirror> slots = limits.slots;  // after the step's updates

  // Without a pool, tables may hold anything.
  uint32_t num_blocks(uint32_t group) const {
    return group < limits.groups.size() ? limits.groups[group].num_blocks : ~0u;
  }

  void check_sampling(const std::string& where, const RowSampling& s) {
    if (s.flags & ~uint32_t{kRowProcessed}) report.fail(where, "flags", "known ones", s.flags);
    for (const SamplingParameter& parameter : kSamplingParameters) {
      const std::optional<double> number = parameter.of(s);
      if (number && !parameter.may_be(*number))
        report.fail(where, std::string(parameter.name), parameter.expected(), *number);
    }
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
        if (!report.below(where, "arg1 (kv group)", update.arg1, slot.tables.size())) return;
        for (uint32_t i = 0; i < update.payload_words; ++i) {
          report.below(where, "block", payload[i], num_blocks(update.arg1));
          slot.tables[update.arg1][update.arg0 + i] = static_cast<int32_t>(payload[i]);
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
      case RowUpdateKind::kCount:
        report.below(where, "arg0 (penalty slot)", update.arg0, limits.state.penalty_rows_max);
        for (uint32_t i = 0; i < update.payload_words; ++i)
          report.below(where, "token", payload[i], limits.state.vocab_size);
        return;
      case RowUpdateKind::kClear:
        slot = empty_slot(limits.state);
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

  // The moves of one op, those of its group, run side by side: none may read what another writes.
  template <class OpType>
  void check_moves(const char* array, const std::vector<BlockCopy>& moves, uint32_t KvGroup::*sources_end,
                   uint32_t KvGroup::*targets_end) {
    const std::string name = op_name(Op{OpType{}});
    const bool whole = !std::is_same_v<OpType, CopyBlocks>;
    std::set<std::pair<uint32_t, uint32_t>> sources, targets;  // group, block
    for (size_t i = 0; i < moves.size() && report.ok(); ++i) {
      const BlockCopy& move = moves[i];
      const std::string where = fmt::format("{}: {}[{}]", name, array, i);
      if (!memory || !moves_group<OpType>(*memory, move.kv_group))
        return report.fail("forward inputs", array,
                           fmt::format("none without {} of group {} in a memory list", name, move.kv_group),
                           moves.size());
      if (!report.below(where, "kv_group", move.kv_group, limits.groups.size())) return;
      const KvGroup& group = limits.groups[move.kv_group];
      report.below(where, "source", move.source, group.*sources_end);
      report.below(where, "target", move.target, group.*targets_end);
      const uint32_t least = whole || group.is_state() ? group.block_tokens : 1;
      if (move.num_tokens < least || move.num_tokens > group.block_tokens)
        report.fail(where, "num_tokens", fmt::format("{} to {}", least, group.block_tokens), move.num_tokens);
      sources.emplace(move.kv_group, move.source);
      if (!targets.emplace(move.kv_group, move.target).second)
        report.fail(where, "target", "a block that is written once", move.target);
    }
    for (const auto& target : targets)
      if (!whole && sources.contains(target)) report.fail(name, "target", "not a source of the step", target.second);
  }

  void check_memory() {
    check_moves<StoreBlocks>("block_stores", in.block_stores, &KvGroup::num_blocks, &KvGroup::num_host_blocks);
    check_moves<LoadBlocks>("block_loads", in.block_loads, &KvGroup::num_host_blocks, &KvGroup::num_blocks);
    check_moves<CopyBlocks>("block_copies", in.block_copies, &KvGroup::num_blocks, &KvGroup::num_blocks);
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
      report.at_most(where, "adapter_id", row.adapter_id, limits.adapters.slots_max);
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

  void check_adapter_rows() {
    std::vector<uint32_t> slots_of_tokens;
    for (uint32_t t = 0; t < in.token_rows.size(); ++t) {
      const RowRecord& row = in.rows[in.token_rows[t]];
      slots_of_tokens.push_back(t - row.token_first >= row.adapter_first ? row.adapter_id : 0);
    }
    if (!list.ops.empty() && report.ok())
      if (Status status =
              check_adapters(limits, list, in.adapter_items, in.adapter_rows, in.tokens.size(), slots_of_tokens);
          !status)
        report.fail(status);
  }

  int32_t block_of(uint32_t group, uint32_t slot, uint32_t position) const {
    const std::vector<int32_t>& table = slots[slot].tables[group];
    const uint32_t entry = position / limits.groups[group].block_tokens;
    return entry < table.size() ? table[entry] : -1;
  }

  // Every token has a place of its own in the pool of each group.
  void check_places() {
    for (const Op& op : list.ops)
      if (const auto* prepare = std::get_if<PrepareRows>(&op))
        for (uint32_t g = 0; g < limits.groups.size(); ++g)
          if (prepare->kv_slots[g] != kNoTensor) check_places(g);
  }
  void check_places(uint32_t group) {
    const uint32_t block_tokens = limits.groups[group].block_tokens;
    const bool writes = std::ranges::any_of(list.ops, [&](const Op& op) {
      const auto* write = std::get_if<KvWrite>(&op);
      return write && write->kv_group == group;
    });
    std::unordered_set<uint64_t> places;
    for (uint32_t r = 0; r < in.rows.size(); ++r) {
      const RowRecord& row = in.rows[r];
      if (!report.at_most(fmt::format("rows[{}]", r), "positions", uint64_t{row.start} + row.num_tokens,
                          uint64_t{limits.state.blocks_row_max} * block_tokens))
        return;
      for (uint32_t position = row.start; position < row.start + row.num_tokens; ++position) {
        const int32_t block = block_of(group, row.slot, position);
        if (block < 0)
          return report.fail(fmt::format("rows[{}]", r), "block table",
                             fmt::format("a block of group {} for position {}", group, position), "none");
        const uint64_t place = static_cast<uint64_t>(block) * block_tokens + position % block_tokens;
        if (writes && !places.insert(place).second)
          return report.fail(fmt::format("rows[{}]", r), "kv_slots", "a place that one token writes", place);
      }
    }
  }

  // Every row has a record of its own in each group of states that the list names.
  void check_records() {
    check_state_places();
    std::set<uint32_t> groups;
    for (const Op& op : list.ops)
      if (const auto group = state_group(op)) groups.insert(*group);
    for (const uint32_t group : groups) check_records(group);
    if (groups.empty() || !list.decode_only || list.batch_invariant) return;
    for (uint32_t r = 0; r < in.rows.size() && report.ok(); ++r)
      report.at_most(fmt::format("rows[{}]", r), "num_tokens of a decode-only list", in.rows[r].num_tokens,
                     kRingRowTokens);
  }
  void check_records(uint32_t group) {
    std::unordered_map<uint32_t, uint32_t> writers;  // of records: the row
    for (uint32_t r = 0; r < in.rows.size() && report.ok(); ++r) {
      const std::string where = fmt::format("rows[{}]", r);
      const std::vector<int32_t>& table = slots[in.rows[r].slot].tables[group];
      if (table.empty() || table[0] < 0)
        report.fail(where, "table", fmt::format("a record of group {}", group), "none");
      else if (!writers.emplace(static_cast<uint32_t>(table[0]), r).second)
        report.fail(where, "table", fmt::format("a record of group {} that one row writes", group), table[0]);
    }
    each_place([&](uint32_t r, const StatePlace& place, const std::string& where) {
      if (place.kv_group == group && place.position > in.rows[r].start && !writers.emplace(place.record, r).second)
        report.fail(where, "record", fmt::format("one of group {} that nothing else writes", group), place.record);
    });
    each_place([&](uint32_t r, const StatePlace& place, const std::string& where) {
      if (place.kv_group == group && place.position == in.rows[r].start && writers.contains(place.record))
        report.fail(where, "record", fmt::format("one of group {} that no row writes", group), place.record);
    });
  }

  // fn(row, place, where) of all rows' places, which are in bounds.
  template <class Fn>
  void each_place(const Fn& fn) {
    for (uint32_t r = 0; r < in.rows.size() && report.ok(); ++r)
      for (uint32_t i = in.rows[r].places_first; i < in.rows[r].places_first + in.rows[r].num_places; ++i)
        fn(r, in.state_places[i], fmt::format("state_places[{}]", i));
  }
  // Places are those of the rows in their order, and lie where rows pass.
  void check_state_places() {
    uint32_t next = 0;
    for (uint32_t r = 0; r < in.rows.size() && report.ok(); ++r) {
      const RowRecord& row = in.rows[r];
      if (row.num_places > 0 && row.places_first != next)
        report.fail(fmt::format("rows[{}]", r), "places_first", next, row.places_first);
      if (row.num_places > in.state_places.size() - next)
        report.fail(fmt::format("rows[{}]", r), "places", fmt::format("at most {}", in.state_places.size() - next),
                    row.num_places);
      next += row.num_places;
    }
    if (next != in.state_places.size()) report.fail("state_places", "places of rows", next, in.state_places.size());
    std::set<std::tuple<uint32_t, uint32_t, uint32_t>> seen;  // row, group, position
    uint32_t last_row = 0, last_position = 0;
    each_place([&](uint32_t r, const StatePlace& place, const std::string& where) {
      const RowRecord& row = in.rows[r];
      if (!report.below(where, "kv_group", place.kv_group, limits.groups.size())) return;
      if (!limits.groups[place.kv_group].is_state())
        report.fail(where, "kv_group", "a group of states", "one of blocks");
      report.below(where, "record", place.record, limits.groups[place.kv_group].num_blocks);
      if (place.position < std::max(row.start, 1u) || place.position - row.start > row.num_tokens)
        report.fail(where, "position", fmt::format("{} to {}", std::max(row.start, 1u), row.start + row.num_tokens),
                    place.position);
      if (place.position > row.start && place.position % kStatePlaceTokens != 0)
        report.fail(where, "position", fmt::format("a multiple of {}", kStatePlaceTokens), place.position);
      if (r == last_row && place.position < last_position)
        report.fail(where, "position", fmt::format("at least {}", last_position), place.position);
      if (!seen.emplace(r, place.kv_group, place.position).second)
        report.fail(where, "position", "one place of a group", place.position);
      last_row = r;
      last_position = place.position;
    });
  }

  // The token at `t` of a decode item.
  void check_merge(const std::string& where, const AttentionWork& work, const AttentionItem& item, uint32_t t) {
    const MergeItem &first = work.merge_items[item.merge_idx], &merge = work.merge_items[item.merge_idx + t];
    const uint64_t partial = static_cast<uint32_t>(item.partial) + uint64_t{t} * first.num_partials;
    if (partial < merge.partial_first || partial - merge.partial_first >= merge.num_partials)
      report.fail(where, "merge_idx", fmt::format("a merge of partial {}", partial), item.merge_idx + t);
    if (item.num_tokens > 1 && (merge.num_partials != first.num_partials || merge.token != item.token_first + t))
      report.fail(where, "merge_idx",
                  fmt::format("a merge of {} partials of token {}", first.num_partials, item.token_first + t),
                  fmt::format("{} of token {}", merge.num_partials, merge.token));
  }

  void check_item(const std::string& where, uint32_t group, const AttentionItem& item, uint32_t tokens_max,
                  uint32_t partial_stride) {
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
    const uint32_t block_tokens = limits.groups[group].block_tokens;
    for (uint32_t key = item.key_begin; key < item.key_end && report.ok(); key += block_tokens - key % block_tokens)
      if (block_of(group, item.slot, key) < 0)
        report.fail(where, "block table", fmt::format("a block of group {} for key {}", group, key), "none");
    if (item.partial >= 0)
      report.at_most(where, "partials", uint64_t(item.partial) + (item.num_tokens - 1) * uint64_t{partial_stride} + 1,
                     limits.state.partials_max);
  }

  // The lists of every group that attention looks at, once.
  void check_items() {
    std::set<uint32_t> groups, latent_groups;
    for (const Op& op : list.ops) {
      if (const auto* paged = std::get_if<PagedAttention>(&op)) groups.insert(paged->kv_group);
      if (const auto* latent = std::get_if<LatentAttention>(&op)) latent_groups.insert(latent->kv_group);
    }
    for (const Op& op : list.ops)
      if (const auto* expand = std::get_if<ExpandLatent>(&op)) check_expands(*expand);
    for (const uint32_t group : groups) check_items(group, list.has_runs ? kDecodeItemTokens : 1);
    for (const uint32_t group : latent_groups) check_items(group, 1);
    for (const Op& op : list.ops)
      if (const auto* paged = std::get_if<PagedAttention>(&op); paged && paged->value_dim > 0)
        check_expanded(paged->kv_group);
  }
  // Keys that are there, each expanded into a block of its own, which the row's table names.
  void check_expands(const ExpandLatent& op) {
    const std::vector<ExpandItem>& items = in.attention[op.expanded_group].expand_items;
    for (const auto* absorbed : {&in.attention[op.kv_group].decode_items, &in.attention[op.kv_group].prompt_items})
      for (const AttentionItem& item : *absorbed)
        report.at_most(fmt::format("group {}: items", op.kv_group), "tokens", item.token_first + item.num_tokens,
                       in.num_absorbed);
    std::unordered_set<uint32_t> blocks;
    for (size_t i = 0; i < items.size() && report.ok(); ++i) {
      const ExpandItem& item = items[i];
      const std::string where = fmt::format("group {}: expand_items[{}]", op.expanded_group, i);
      const auto row = std::ranges::find(in.rows, item.slot, &RowRecord::slot);
      if (row == in.rows.end()) return report.fail(where, "slot", "that of a row", item.slot);
      if (item.key_begin % kExpandItemKeys != 0)
        report.fail(where, "key_begin", fmt::format("a multiple of {}", kExpandItemKeys), item.key_begin);
      if (item.num_keys == 0 || item.num_keys > kExpandItemKeys)
        report.fail(where, "num_keys", fmt::format("1 to {}", kExpandItemKeys), item.num_keys);
      report.at_most(where, "keys", uint64_t{item.key_begin} + item.num_keys, uint64_t{row->start} + row->num_tokens);
      report.below(where, "block", item.block, limits.groups[op.expanded_group].seen_by(op.num_heads).num_blocks);
      if (!blocks.insert(item.block).second) report.fail(where, "block", "one that is written once", item.block);
      if (!report.ok()) return;
      const int32_t named = block_of(op.expanded_group, item.slot, item.key_begin);
      if (named != static_cast<int32_t>(item.block)) report.fail(where, "block table", item.block, named);
      const uint32_t block_tokens = limits.groups[op.kv_group].block_tokens;
      for (uint32_t key = item.key_begin; key < item.key_begin + item.num_keys && report.ok();
           key += block_tokens - key % block_tokens)
        if (block_of(op.kv_group, item.slot, key) < 0)
          report.fail(where, "block table", fmt::format("a block of group {} for key {}", op.kv_group, key), "none");
    }
  }
  // What prompt items read has been expanded in this step.
  void check_expanded(uint32_t group) {
    const AttentionWork& work = in.attention[group];
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> ends;  // slot, first key of an item: the end of its keys
    for (const ExpandItem& item : work.expand_items) ends[{item.slot, item.key_begin}] = item.key_begin + item.num_keys;
    report.at_most(fmt::format("group {}: decode_items", group), "items over expanded keys", work.decode_items.size(),
                   0u);
    for (size_t i = 0; i < work.prompt_items.size() && report.ok(); ++i) {
      const AttentionItem& item = work.prompt_items[i];
      for (uint32_t key = item.key_begin / kExpandItemKeys * kExpandItemKeys; key < item.key_end && report.ok();
           key += kExpandItemKeys) {
        const auto end = ends.find({item.slot, key});
        if (end == ends.end() || end->second < std::min(item.key_end, key + kExpandItemKeys))
          report.fail(fmt::format("group {}: prompt_items[{}]", group, i), "keys", "ones that are expanded", key);
      }
    }
  }
  // run_max: tokens of a decode item.
  void check_items(uint32_t group, uint32_t run_max) {
    const AttentionWork& work = in.attention[group];
    const std::string of_group = group == 0 ? "" : fmt::format("group {}: ", group);
    if (list.decode_only)
      report.at_most(of_group + "prompt_items", "items of a decode-only list", work.prompt_items.size(), 0u);
    for (size_t i = 0; i < work.decode_items.size() && report.ok(); ++i) {
      const AttentionItem& item = work.decode_items[i];
      const std::string where = fmt::format("{}decode_items[{}]", of_group, i);
      const bool merges = item.partial >= 0;
      if (merges && !report.below(where, "merge_idx", uint64_t{item.merge_idx} + std::max(item.num_tokens, 1u) - 1,
                                  work.merge_items.size()))
        continue;
      const uint32_t stride = merges ? work.merge_items[item.merge_idx].num_partials : 1;
      check_item(where, group, item, run_max, stride);
      for (uint32_t t = 0; merges && report.ok() && t < item.num_tokens; ++t) check_merge(where, work, item, t);
    }
    for (size_t i = 0; i < work.prompt_items.size() && report.ok(); ++i)
      check_item(fmt::format("{}prompt_items[{}]", of_group, i), group, work.prompt_items[i], kPromptItemTokens,
                 work.prompt_items[i].partial_stride);
    for (size_t i = 0; i < work.merge_items.size() && report.ok(); ++i) {
      const MergeItem& merge = work.merge_items[i];
      const std::string where = fmt::format("{}merge_items[{}]", of_group, i);
      report.below(where, "token", merge.token, in.tokens.size());
      if (merge.num_partials == 0) report.fail(where, "num_partials", "at least 1", 0);
      report.at_most(where, "partials", uint64_t{merge.partial_first} + merge.num_partials, limits.state.partials_max);
    }
  }
};

}  // namespace

SlotMirror empty_slot(const StateConfig& state) {
  return {{}, std::vector(state.num_kv_groups, std::vector<int32_t>(state.blocks_row_max, -1))};
}

Status check_forward_inputs(Limits& limits, const OpList* memory, const OpList* forward, const ForwardInputs& inputs) {
  const OpList none;
  ForwardChecker checker{limits, memory, forward ? *forward : none, inputs};
  checker.check_updates();
  checker.check_memory();
  checker.check_rows();
  if (checker.report.ok()) checker.check_places();
  if (checker.report.ok()) checker.check_records();
  if (checker.report.ok()) checker.check_items();
  if (checker.report.ok()) checker.check_adapter_rows();
  if (checker.report.ok()) limits.slots = std::move(checker.slots);
  return checker.report.status();
}

}  // namespace llmrt::validating
