// The KV cache's books as the scheduler uses them: the pools of all groups, a sequence's tables in them (one per
// group), the prefix cache over them and the host tier below. A sequence grows in all groups or in none. The parts:
//   cache_groups.h    pools, tables, windows, states
//   prefix_sharing.h  what sequences share, and what a match is where groups differ
//   checkpoints.h     which states are kept longest
//   tiers.h           the moves of the step that is being made
//   audit.h           the check of all of it
#pragma once

#include <span>
#include <vector>

#include "core/kv/audit.h"

namespace llmrt {

class KvSpace {
 public:
  explicit KvSpace(std::span<const KvPoolSize> sizes, PrefixCacheKind cache = PrefixCacheKind::kOff,
                   const HostTierSize& host = {}, BlockDisk* disk = nullptr)
      : groups_(sizes), tiers_(&groups_, host, disk, &listeners_), sharing_(&groups_, &tiers_, cache, &listeners_) {}

  uint32_t num_groups() const { return groups_.size(); }
  bool is_state(uint32_t group) const { return groups_.is_state(group); }
  uint32_t num_blocks(uint32_t group) const { return groups_.pool(group).num_blocks(); }
  // Cached blocks that nobody holds count as free.
  uint32_t num_free(uint32_t group) const { return groups_.pool(group).num_free(); }
  uint32_t num_cached(uint32_t group) const { return groups_.pool(group).num_cached(); }
  // The most that tables held at once since the start.
  uint32_t num_held_most(uint32_t group) const { return groups_.pool(group).num_held_most(); }
  uint32_t window(uint32_t group) const { return groups_.shape(group).window; }  // positions; 0 = all
  // The most blocks that a sequence of at most so many tokens holds while it grows token by token.
  uint32_t blocks_for(uint32_t group, uint32_t num_tokens) const { return groups_.blocks_for(group, num_tokens); }
  // Entries of its table, those behind the window among them.
  uint32_t entries_for(uint32_t group, uint32_t num_tokens) const { return groups_.entries_for(group, num_tokens); }

  // Whether the pools as a whole could.
  bool can_hold(uint32_t num_tokens) const { return groups_.can_hold(num_tokens); }

  // Tables with room reserved for `num_tokens`, no blocks yet.
  std::vector<BlockTable> make_tables(uint32_t num_tokens) const { return groups_.make_tables(num_tokens); }
  // How many tokens the tables could hold if they took every free block.
  uint32_t capacity_tokens(std::span<const BlockTable> tables) const { return groups_.capacity_tokens(tables); }
  // Appends blocks until the tables hold `num_tokens`. False when some group has too few; nothing has changed then.
  bool grow(std::span<BlockTable> tables, uint32_t num_tokens) { return groups_.grow(tables, num_tokens); }
  // Checkpoints may be kept behind every so many tokens; 0: there are no states, or no cache.
  uint32_t place_tokens() const { return has_cache() ? groups_.place_tokens() : 0; }
  // The plan that is being made computes the positions up to `num_tokens`: blocks behind the next token's window are
  // given back with the step (keep comes first: it may cache them), and states stand there from the next step on.
  void advance(std::span<BlockTable> tables, uint32_t num_tokens) { groups_.advance(tables, num_tokens); }
  // The same for a step that the device has already: the blocks are given back at once.
  void settle(std::span<BlockTable> tables, uint32_t num_tokens) {
    groups_.advance(tables, num_tokens);
    groups_.end_step();
  }
  // Gives all blocks back, last first; the tables are empty then. With `forget`, what only these tables know of is not
  // kept in the cache: the content cannot be trusted. Else a state that stands where one may be kept is a checkpoint.
  void release(std::span<BlockTable> tables, bool forget = false) { sharing_.release(tables, forget); }

  // ---- shared beginnings (prefix_sharing.h) ----
  bool has_cache() const { return sharing_.has_cache(); }
  uint32_t block_tokens() const { return groups_.shape(0).block_tokens; }  // of group 0
  PrefixMatch match(const Digest& identity, std::span<const int32_t> tokens) const {
    return sharing_.match(identity, tokens);
  }
  PrefixMatch match(std::span<const BlockTable> tables, uint32_t num_tokens) const {
    return sharing_.match(tables, num_tokens);
  }
  uint32_t num_live(const PrefixMatch& match, uint32_t group = 0) const { return sharing_.num_live(match, group); }
  // The same of the block that would be copied from.
  bool is_live(BlockId block) const { return groups_.pool(0).references(block) > 0; }
  bool is_trusted(std::span<const BlockTable> tables) const { return sharing_.is_trusted(tables); }
  void share(std::span<BlockTable> tables, const PrefixMatch& match) { sharing_.share(tables, match); }
  void load(std::span<BlockTable> tables, const PrefixMatch& match) { sharing_.load(tables, match); }
  // A block of group 0 that is to be copied from stays what it is until it is unpinned: it counts as held.
  void pin(BlockId block) { groups_.pool(0).retain(block); }
  void unpin(BlockId block) { sharing_.release(block, /*forget=*/false); }
  void keep(std::span<BlockTable> tables, const Digest& identity, std::span<const int32_t> tokens,
            bool may_last = false) {
    sharing_.keep(tables, identity, tokens, may_last);
  }
  // Told from now on of what the cache and the host tier have (prefix_listener.h). While nothing is in them; without a
  // cache it is told nothing. It outlives the space.
  void listen(PrefixListener* listener) {
    if (!has_cache()) return;
    sharing_.keep_keys();
    listeners_.add(listener);
  }
  // ---- states of a row of the plan that is being made (prefix_sharing.h) ----
  void begin_states(std::span<BlockTable> tables, uint32_t start, std::vector<RecordPlace>* places) {
    sharing_.begin_states(tables, start, places);
  }
  void save_states(std::span<BlockTable> tables, uint32_t position, CheckpointKind kind,
                   std::vector<RecordPlace>* places) {
    sharing_.save_states(tables, position, kind, places);
  }
  // The group is one of states.
  CheckpointCounts checkpoint_counts(uint32_t group) const { return sharing_.checkpoint_counts(group); }
  // Stands for the identity and the tokens of a text's first block, and so for all blocks of the cache and of the host
  // tier that begin with it. 0: nothing of the tables is cached.
  uint64_t root(std::span<const BlockTable> tables) const { return sharing_.root(tables); }
  uint64_t root(BlockId block) const { return sharing_.root(block); }
  // What stands behind this root cannot be trusted, and no match comes upon it any more: in both tiers it goes at once,
  // and where somebody holds it, when they let go. O(blocks).
  void forget(uint64_t root) { sharing_.forget(root); }

  // ---- moves (tiers.h) ----
  const HostTier* host() const { return tiers_.host(0); }
  // Whether the cached blocks of these tables, and what stands beside them, shall be stored when the pools hand them
  // out again.
  void set_worth_storing(std::span<const BlockTable> tables, bool worth) { sharing_.set_worth_storing(tables, worth); }
  // In blocks of group 0 with as many bytes: what tables hold, and what moves move.
  double move_blocks(std::span<const BlockTable> tables) const;
  double move_blocks(std::span<const BlockMove> moves) const;
  // What the step that is being made has to do first: the stores, then the loads, then the copies.
  std::span<const BlockMove> stores() const { return tiers_.stores(); }
  std::span<const BlockMove> loads() const { return tiers_.loads(); }
  std::span<const BlockMove> copies() const { return tiers_.copies(); }
  // They are in a plan. Checkpoints that it makes may be used from now on.
  void forget_moves() {
    groups_.end_step();
    sharing_.end_step();
    tiers_.end_step();
  }

  // ---- the disk below the host tier (tiers.h, prefix_sharing.h) ----
  bool has_disk() const { return tiers_.has_disk(); }
  bool is_disk_lasting() const { return tiers_.is_disk_lasting(); }
  // Whether all full blocks of these tokens are known, on the device or on the host.
  bool knows(const Digest& identity, std::span<const int32_t> tokens) const {
    return match(identity, tokens).num_full() == tokens.size() / block_tokens();
  }
  // What these tables have begun with is saved, too, whether or not it was to be when it was computed.
  void save_known(std::span<const BlockTable> tables) { sharing_.save_known(tables); }
  // Some blocks that the disk lacks are stored with this step: those that earlier plans have computed, or, while no
  // plan is in flight, `all`. At most so many, and no more than the disk takes.
  void save(uint32_t blocks_max, bool all = false) { sharing_.save(blocks_max, all); }
  bool has_saves() const { return sharing_.has_saves(); }
  // The next step, in the order of forget_moves, is complete: what it has stored goes to the disk.
  void step_is_complete() { tiers_.step_is_complete(); }
  void poll_disk() { tiers_.poll_disk(); }
  // What the disk has of the longest known beginning is read into the host tier: a match finds it when is_reading says
  // no longer. 0: the disk has nothing of it. Nothing: not now, as others have taken the room.
  std::optional<DiskBatch> read_from_disk(const Digest& identity, std::span<const int32_t> tokens) {
    return sharing_.read_from_disk(identity, tokens);
  }
  bool is_reading(DiskBatch batch) const { return tiers_.is_reading(batch); }
  // How many of the match's host blocks the disk has read for it.
  uint32_t num_from_disk(const PrefixMatch& match) const;

  using Holder = TableHolder;
  Status check_books(std::span<const Holder> sequences) const { return audit(groups_, sharing_, tiers_, sequences); }

 private:
  PrefixListeners listeners_;
  CacheGroups groups_;
  Tiers tiers_;
  PrefixSharing sharing_;
};

inline uint32_t KvSpace::num_from_disk(const PrefixMatch& match) const {
  uint32_t count = 0;
  for (const BlockId block : match.host_blocks) count += tiers_.host(0)->is_from_disk(block);
  return count;
}

inline double KvSpace::move_blocks(std::span<const BlockTable> tables) const {
  double blocks = 0;
  for (uint32_t g = 0; g < tables.size(); ++g) blocks += groups_.move_blocks(g) * tables[g].num_held();
  return blocks;
}

inline double KvSpace::move_blocks(std::span<const BlockMove> moves) const {
  double blocks = 0;
  for (const BlockMove& move : moves) blocks += groups_.move_blocks(move.kv_group);
  return blocks;
}

}  // namespace llmrt
