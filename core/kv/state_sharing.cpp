// States in the cache: rows that begin from a checkpoint, places of a step that become one, and which goes.
#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/kv/prefix_sharing.h"

namespace llmrt {

// ---- into tables ---------------------------------------------------------------------------------------------------

// No place is found in a match that begins from a running sequence.
void PrefixSharing::learn_from(uint32_t group, const PrefixMatch& match) {
  if (match.num_path == 0) return;
  const std::vector<GroupMatch::Part>& parts = match.others[group - 1].parts;
  const BlockId source = parts.empty() || !parts[0].is_checkpoint ? kNoBlock : parts[0].block;
  const bool is_short = (match.num_path - match.num_full()) * groups_.shape(0).block_tokens >= groups_.place_tokens();
  checkpoints_[group - 1].learn(source, is_short, match.path_end);
}

// Whether the sequence that begins from the record goes on in it. So it does where the pool has
// no other, and where another one would be lost that is worth more: with text of its own behind it (has_new_text) it is
// the next turn of a conversation, and nobody else is expected to begin here.
bool PrefixSharing::takes_place(uint32_t group, BlockId record, bool has_new_text) const {
  const BlockPool& pool = groups_.pool(group);
  const Checkpoints& checkpoints = checkpoints_[group - 1];
  if (pool.num_free() == 0) return true;
  if (pool.num_free() > pool.num_cached() || checkpoints.is_used(record) || checkpoints.is_shared(record)) return false;
  return has_new_text && !checkpoints.is_worthless(checkpoints.least(pool));
}

// The record is held for the table.
void PrefixSharing::begin_from(uint32_t group, BlockTable& table, BlockId record, bool has_new_text) {
  const bool takes = takes_place(group, record, has_new_text);
  Checkpoints& checkpoints = checkpoints_[group - 1];
  checkpoints.hit(record);
  table.num_turns = checkpoints.is_shared(record) ? 0 : checkpoints.num_turns(record);
  if (!takes) {
    LLMRT_CHECK(groups_.pool(group).num_free() > 0, "a sequence that starts finds a record");
    table.blocks.push_back(groups_.allocate(group));
    table.source = record;
    return;
  }
  LLMRT_CHECK(groups_.pool(group).references(record) == 1, "a sequence goes on in a record of its own");
  store_part(group, record);
  detach(group, record);
  table.blocks.push_back(record);
}

void PrefixSharing::begin_states(std::span<BlockTable> tables, uint32_t start, std::vector<RecordPlace>* places) {
  for (uint32_t g = 1; g < groups_.size(); ++g) {
    BlockTable& table = tables[g];
    if (table.source == kNoBlock) continue;
    places->push_back({g, table.source, start});
    reads_.push_back({g, table.source});
    table.source = kNoBlock;
  }
}

// ---- into the cache ------------------------------------------------------------------------------------------------

BlockId PrefixSharing::node_for_state(uint32_t group, std::span<const BlockTable> tables, uint32_t position) const {
  const uint32_t block_tokens = groups_.shape(0).block_tokens, num_nodes = position / block_tokens;
  if (!cache_ || num_nodes == 0 || position % block_tokens != 0) return kNoBlock;
  if (!contents(group).ends_at(num_nodes) || num_nodes > tables[0].num_cached) return kNoBlock;
  const BlockId node = tables[0].blocks[num_nodes - 1];
  return is_forgotten_[node] || contents(group).at(node, 0) != kNoBlock ? kNoBlock : node;
}

bool PrefixSharing::is_pending(uint32_t group, BlockId node) const {
  return std::ranges::any_of(pending_, [&](const Pending& p) { return p.group == group && p.node == node; });
}

// The node of a state that is not kept yet, kNoBlock where its tokens are not known; nothing: none is to be kept.
std::optional<BlockId> PrefixSharing::node_to_save(uint32_t group, std::span<const BlockTable> tables,
                                                   uint32_t position) const {
  if (!groups_.is_state(group)) return std::nullopt;
  const BlockId node = node_for_state(group, tables, position);
  if (position / groups_.shape(0).block_tokens > tables[0].num_cached) {
    if (tables[group].waiting.record != kNoBlock) return std::nullopt;
  } else if (node == kNoBlock || is_pending(group, node)) {
    return std::nullopt;
  }
  return node;
}

Checkpoints::Place PrefixSharing::place_of(uint32_t group, std::span<const BlockTable> tables, uint32_t position,
                                           CheckpointKind kind) const {
  uint32_t at = position;
  BlockId record = last_before(group, tables, &at);
  while (record != kNoBlock && checkpoints_[group - 1].is_passed(record)) record = last_before(group, tables, &at);
  return {position, record, kind, tables[group].num_turns};
}

// The last checkpoint on the tables' path before `position`, which is then its own.
BlockId PrefixSharing::last_before(uint32_t group, std::span<const BlockTable> tables, uint32_t* position) const {
  const uint32_t block_tokens = groups_.shape(0).block_tokens, place_tokens = groups_.shape(group).block_tokens;
  while (*position > place_tokens) {
    *position -= place_tokens;
    const BlockId record = contents(group).at(tables[0].blocks[*position / block_tokens - 1], 0);
    if (record != kNoBlock) return record;
  }
  return kNoBlock;
}

// Where answers are gone on from the one before the prompt's end is of no use either; else it is the one that matters.
void PrefixSharing::pass(uint32_t group, std::span<const BlockTable> tables, uint32_t position, CheckpointKind kind) {
  Checkpoints& checkpoints = checkpoints_[group - 1];
  bool keeps_prompt = kind == CheckpointKind::kAnswer && !checkpoints.answers_go_on();
  for (;;) {
    const BlockId record = last_before(group, tables, &position);
    if (record == kNoBlock) return;
    if (!keeps_prompt || checkpoints.kind(record) != CheckpointKind::kPrompt) checkpoints.set_passed(record);
    keeps_prompt = keeps_prompt && checkpoints.kind(record) == CheckpointKind::kShared;
  }
}

// Nothing is kept at `position`: the conversation goes on from the one before it.
void PrefixSharing::keep_last(std::span<const BlockTable> tables, uint32_t position) {
  for (uint32_t g = 1; g < groups_.size(); ++g)
    if (uint32_t at = position; groups_.is_state(g))
      if (const BlockId last = last_before(g, tables, &at); last != kNoBlock) checkpoints_[g - 1].set_last(last);
}

bool PrefixSharing::has_room(const Checkpoints::Place& place, uint32_t group) {
  const BlockPool& pool = groups_.pool(group);
  if (pool.num_free() > pool.num_cached()) return true;
  return pool.num_cached() > 0 && checkpoints_[group - 1].stays(place, checkpoints_[group - 1].least(pool));
}

// In all groups of states or in none: a hit needs each.
void PrefixSharing::save_states(std::span<BlockTable> tables, uint32_t position, CheckpointKind kind,
                                std::vector<RecordPlace>* places) {
  if (!cache_ || position == 0 || position % groups_.place_tokens() != 0) return;
  const uint32_t num_nodes = position / groups_.shape(0).block_tokens;
  if (kind == CheckpointKind::kPrompt && num_nodes <= tables[0].num_cached)
    ends_prompt_[tables[0].blocks[num_nodes - 1]] = true;
  for (uint32_t g = 1; g < groups_.size(); ++g) {
    if (!node_to_save(g, tables, position)) continue;
    if (kind == CheckpointKind::kAnswer) drop_newest(g, tables);
    if (kind >= CheckpointKind::kPrompt) pass(g, tables, position, kind);
    if (!has_room(place_of(g, tables, position, kind), g)) return keep_last(tables, position);
  }
  for (uint32_t g = 1; g < groups_.size(); ++g) {
    const std::optional<BlockId> node = node_to_save(g, tables, position);
    if (!node) continue;
    const BlockId record = groups_.allocate(g);
    places->push_back({g, record, position});
    pending_.push_back({tables, g, {record, position}, *node, kind});
  }
}

// One that others have begun from is theirs, too. What was evicted since may be another's record.
void PrefixSharing::drop_newest(uint32_t group, std::span<BlockTable> tables) {
  const BlockId newest = newest_of(group, tables);
  tables[group].newest = {};
  if (newest != kNoBlock && !checkpoints_[group - 1].is_used(newest)) detach(group, newest);
}

BlockId PrefixSharing::newest_of(uint32_t group, std::span<const BlockTable> tables) const {
  const SavedState& newest = tables[group].newest;
  if (newest.record == kNoBlock) return kNoBlock;
  const BlockId node = tables[0].blocks[newest.position / groups_.shape(0).block_tokens - 1];
  return contents(group).at(node, 0) == newest.record ? newest.record : kNoBlock;
}

void PrefixSharing::end_step() {
  for (const Pending& pending : pending_) {
    BlockTable& table = pending.tables[pending.group];
    if (pending.node == kNoBlock && !pending.is_gone) {
      table.waiting = pending.state;
      continue;
    }
    if (!pending.is_gone) attach_state(pending.group, pending.tables, pending.state, pending.kind);
    groups_.pool(pending.group).release(pending.state.record);
  }
  pending_.clear();
  ++step_;
  for (const Read& read : reads_) groups_.pool(read.group).release(read.record);
  reads_.clear();
}

void PrefixSharing::attach_waiting(std::span<BlockTable> tables) {
  for (uint32_t g = 1; g < groups_.size(); ++g) {
    SavedState& waiting = tables[g].waiting;
    if (waiting.record == kNoBlock || waiting.position / groups_.shape(0).block_tokens > tables[0].num_cached) continue;
    attach_state(g, tables, waiting, CheckpointKind::kAnswer);
    groups_.pool(g).release(waiting.record);
    waiting = {};
  }
}

// Nothing where one stands already.
void PrefixSharing::attach_state(uint32_t group, std::span<BlockTable> tables, const SavedState& state,
                                 CheckpointKind kind) {
  const BlockId node = node_for_state(group, tables, state.position);
  if (node == kNoBlock) return;
  attach(group, node, 0, state.record);
  checkpoints_[group - 1].add(state.record, place_of(group, tables, state.position, kind));
  if (kind == CheckpointKind::kAnswer) tables[group].newest = state;
}

CheckpointCounts PrefixSharing::checkpoint_counts(uint32_t group) const {
  return has_cache() && group > 0 ? checkpoints_[group - 1].counts() : CheckpointCounts{};
}

// ---- out of tables and out of the cache ----------------------------------------------------------------------------

// A sequence that has not begun has nothing of its own yet.
void PrefixSharing::release_states(uint32_t group, std::span<BlockTable> tables, bool forget) {
  if (const BlockId newest = newest_of(group, tables); newest != kNoBlock) checkpoints_[group - 1].set_last(newest);
  const BlockTable& table = tables[group];
  if (forget || table.blocks.empty() || table.source != kNoBlock) return;
  attach_state(group, tables, {table.blocks[0], table.num_tokens}, CheckpointKind::kPassage);
}

void PrefixSharing::evict_state(uint32_t group) {
  const BlockId record = checkpoints_[group - 1].least(groups_.pool(group));
  checkpoints_[group - 1].evict(record);
  store_part(group, record);
  detach(group, record);
}

}  // namespace llmrt
