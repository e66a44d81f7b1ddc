// States in the cache: rows that begin from a checkpoint, places of a step that become one, and which goes.
#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/kv/prefix_sharing.h"

namespace llmrt {

// ---- into tables ---------------------------------------------------------------------------------------------------

// Of a record that is held for the table. Where its pool has no other, the checkpoint itself goes on.
void PrefixSharing::begin_from(uint32_t group, BlockTable& table, BlockId record) {
  const BlockPool& pool = groups_.pool(group);
  checkpoints_[group - 1].hit(record);
  if (pool.num_free() > 0) {
    table.blocks.push_back(groups_.allocate(group));
    table.source = record;
    return;
  }
  LLMRT_CHECK(pool.references(record) == 1, "a sequence that starts finds a record");
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

// In all groups of states or in none: a hit needs each.
void PrefixSharing::save_states(std::span<BlockTable> tables, uint32_t position, bool is_answer,
                                std::vector<RecordPlace>* places) {
  if (!cache_ || position == 0 || position % groups_.place_tokens() != 0) return;
  for (uint32_t g = 1; g < groups_.size(); ++g) {
    if (!node_to_save(g, tables, position)) continue;
    if (is_answer) drop_newest(g, tables);
    if (groups_.pool(g).num_free() == 0) return;
  }
  for (uint32_t g = 1; g < groups_.size(); ++g) {
    const std::optional<BlockId> node = node_to_save(g, tables, position);
    if (!node) continue;
    const BlockId record = groups_.allocate(g);
    places->push_back({g, record, position});
    pending_.push_back({tables, g, {record, position}, *node, is_answer});
  }
}

// One that others have begun from is theirs, too. What was evicted since may be another's record.
void PrefixSharing::drop_newest(uint32_t group, std::span<BlockTable> tables) {
  const SavedState newest = std::exchange(tables[group].newest, {});
  if (newest.record == kNoBlock) return;
  const BlockId node = tables[0].blocks[newest.position / groups_.shape(0).block_tokens - 1];
  if (contents(group).at(node, 0) != newest.record || checkpoints_[group - 1].is_used(newest.record)) return;
  detach(group, newest.record);
}

void PrefixSharing::end_step() {
  for (const Pending& pending : pending_) {
    BlockTable& table = pending.tables[pending.group];
    if (pending.node == kNoBlock && !pending.is_gone) {
      table.waiting = pending.state;
      continue;
    }
    if (!pending.is_gone) attach_state(pending.group, pending.tables, pending.state, pending.is_answer);
    groups_.pool(pending.group).release(pending.state.record);
  }
  pending_.clear();
  for (const Read& read : reads_) groups_.pool(read.group).release(read.record);
  reads_.clear();
}

void PrefixSharing::attach_waiting(std::span<BlockTable> tables) {
  for (uint32_t g = 1; g < groups_.size(); ++g) {
    SavedState& waiting = tables[g].waiting;
    if (waiting.record == kNoBlock || waiting.position / groups_.shape(0).block_tokens > tables[0].num_cached) continue;
    attach_state(g, tables, waiting, /*is_answer=*/true);
    groups_.pool(g).release(waiting.record);
    waiting = {};
  }
}

// Nothing where one stands already. Those of earlier turns, which the answer goes on from, have done their part.
void PrefixSharing::attach_state(uint32_t group, std::span<BlockTable> tables, const SavedState& state,
                                 bool is_answer) {
  const BlockId node = node_for_state(group, tables, state.position);
  if (node == kNoBlock) return;
  const uint32_t block_tokens = groups_.shape(0).block_tokens, place_tokens = groups_.shape(group).block_tokens;
  Checkpoints& checkpoints = checkpoints_[group - 1];
  uint32_t before = 0;  // the position of the checkpoint before it
  for (uint32_t at = state.position - place_tokens; at > 0; at -= place_tokens) {
    const BlockId record = contents(group).at(tables[0].blocks[at / block_tokens - 1], 0);
    if (record == kNoBlock) continue;
    before = std::max(before, at);
    if (!is_answer) break;
    if (checkpoints.is_answer(record)) checkpoints.set_passed(record);
  }
  attach(group, node, 0, state.record);
  checkpoints.add(state.record, state.position - before, is_answer);
  if (is_answer) tables[group].newest = state;
}

CheckpointCounts PrefixSharing::checkpoint_counts(uint32_t group) const {
  return has_cache() && group > 0 ? checkpoints_[group - 1].counts() : CheckpointCounts{};
}

// ---- out of tables and out of the cache ----------------------------------------------------------------------------

// A sequence that has not begun has nothing of its own yet.
void PrefixSharing::release_states(uint32_t group, std::span<BlockTable> tables, bool forget) {
  const BlockTable& table = tables[group];
  if (forget || table.blocks.empty() || table.source != kNoBlock) return;
  attach_state(group, tables, {table.blocks[0], table.num_tokens}, /*is_answer=*/false);
}

void PrefixSharing::evict_state(uint32_t group) {
  const BlockId record = checkpoints_[group - 1].least(groups_.pool(group));
  checkpoints_[group - 1].evict(record);
  store_part(group, record);
  detach(group, record);
}

}  // namespace llmrt
