// Beginnings that sequences share: the prefix cache over group 0, what the other groups have beside it, and who may use
// it.
//
// A table may begin with blocks that other tables hold too: they are full and not written any more. Where a block
// is full only in part, its filled slots are copied, and so is a state, so what is written next is always the
// sequence's own. With a prefix cache a table of group 0 begins with blocks that stand in the cache, and only what
// stands there, or beside it, is shared.
//
// Group 0 is one of blocks without a window. A beginning is usable where every group has what the next token reads:
// group 0 all blocks, a group with a window those inside it, a group of states a checkpoint right there.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/kv/checkpoints.h"
#include "core/kv/group_contents.h"
#include "core/kv/prefix_cache.h"
#include "core/kv/prefix_listener.h"
#include "core/kv/tiers.h"

namespace llmrt {

// Where a step reads or writes a state beside the row's own record: the one behind `position` tokens.
struct RecordPlace {
  uint32_t kv_group = 0;
  BlockId record = kNoBlock;
  uint32_t position = 0;
};

class PrefixSharing final : private CacheGroups::Keeper {
 public:
  // `listeners`: are told of what the cache has; they outlive it.
  PrefixSharing(CacheGroups* groups, Tiers* tiers, PrefixCacheKind kind, const PrefixListeners* listeners);
  PrefixSharing(const PrefixSharing&) = delete;
  // From now on the keys of all blocks are known, as listeners need them. While the cache is empty; there is one.
  void keep_keys();

  bool has_cache() const { return cache_ != nullptr; }
  // The longest beginning of `tokens` that is known. Nothing when there is no cache.
  PrefixMatch match(const Digest& identity, std::span<const int32_t> tokens) const;
  // The first `num_tokens` positions of these tables, which are computed or in flight, as a beginning for other tables.
  // Nothing when they cannot be trusted (forget), or when a state or a window has gone on since.
  PrefixMatch match(std::span<const BlockTable> tables, uint32_t num_tokens) const;
  // How many of a match's blocks of a group are held: they cost no free block.
  uint32_t num_live(const PrefixMatch& match, uint32_t group) const;
  bool is_trusted(std::span<const BlockTable> tables) const {
    return tables[0].num_cached == 0 || !is_forgotten_[tables[0].blocks[0]];
  }

  // Empty tables begin with the match's full blocks of group 0, and with all that it has of the others.
  void share(std::span<BlockTable> tables, const PrefixMatch& match);
  // Then: group 0 grows by the match's host blocks, which are to be loaded. There must be room.
  void load(std::span<BlockTable> tables, const PrefixMatch& match);
  // `tokens` are known and their positions computed or in flight: blocks that they fill go into the cache. A block that
  // is there already takes the place of the table's own, which is given back (and must be sent to the device anew).
  // `may_last`: they may go to a disk.
  void keep(std::span<BlockTable> tables, const Digest& identity, std::span<const int32_t> tokens, bool may_last);
  // A row of the plan that is being made starts at position `start`: the records that it begins from in place of its
  // own. They stay what they are until the step is complete.
  void begin_states(std::span<BlockTable> tables, uint32_t start, std::vector<RecordPlace>* places);
  // The row passes `position`, a multiple of place_tokens: its states there become a checkpoint, usable from the next
  // plan on, or as soon as all tokens before it are known. Records that are written for it are appended to `places`:
  // none where there is one already, or no record is left for it (Checkpoints says which are worth one). kAnswer: it
  // takes the place of the one before it that the sequence has left behind its answer, if nobody has begun from that.
  // To be called behind keep.
  void save_states(std::span<BlockTable> tables, uint32_t position, CheckpointKind kind,
                   std::vector<RecordPlace>* places);
  CheckpointCounts checkpoint_counts(uint32_t group) const;
  // Gives all blocks back. With `forget`, what only these tables know of is not kept in the cache.
  void release(std::span<BlockTable> tables, bool forget);
  void release(BlockId block, bool forget);  // of group 0
  // The step's moves are in a plan: what it writes may be used.
  void end_step();

  // KvSpace says what these mean.
  uint64_t root(std::span<const BlockTable> tables) const;
  uint64_t root(BlockId block) const { return cache_ && cache_->contains(block) ? roots_[block] : 0; }
  void forget(uint64_t root);
  void set_worth_storing(std::span<const BlockTable> tables, bool worth);
  void save(uint32_t blocks_max, bool all);
  void save_known(std::span<const BlockTable> tables);
  bool has_saves() const { return !saves_.empty(); }
  std::optional<DiskBatch> read_from_disk(const Digest& identity, std::span<const int32_t> tokens);

  // For the audit.
  const PrefixCache* cache() const { return cache_.get(); }
  bool is_forgotten(BlockId block) const { return is_forgotten_[block]; }
  // What a group beside group 0 keeps, where there is a cache.
  const GroupContents& contents(uint32_t group) const { return contents_[group - 1]; }
  const Checkpoints& checkpoints(uint32_t group) const { return checkpoints_[group - 1]; }

 private:
  struct Pending {  // a checkpoint that this step makes
    std::span<BlockTable> tables;
    uint32_t group;
    SavedState state;
    BlockId node;  // kNoBlock: its tokens are not known yet, or the node is gone
    CheckpointKind kind;
    bool is_gone = false;
  };
  struct Read {  // a record that rows of this step begin from
    uint32_t group;
    BlockId record;
  };
  struct Save {  // a block that the disk is to have
    uint32_t group;
    BlockId block;
    uint64_t step;  // that kept it
  };
  // The nodes of a match, with what the host tier needs to know of them.
  struct Nodes {
    std::span<const BlockId> blocks = {};  // on the device; the others follow
    std::vector<Digest> host_keys = {};    // of the others
    std::span<const int32_t> tokens = {};  // of all
    bool with_disk = false;                // what has to be read from there counts as there: Tiers::kOnDisk
  };

  void lose(uint32_t group, BlockId block) override;
  void drop(BlockId node);
  void tell_gone(BlockId node) const;
  void store_part(uint32_t group, BlockId block);
  // Stores a block of any group, with the key of its place.
  void store(uint32_t group, BlockId block);
  Digest key_of(uint32_t group, BlockId block) const;
  BlockId node_of(uint32_t group, BlockId block) const;
  void note_save(uint32_t group, BlockId block);
  bool is_to_save(uint32_t group, BlockId block) const { return tiers_.has_disk() && save_steps_[group][block] != 0; }
  PrefixMatch find(const Digest& identity, std::span<const int32_t> tokens, Nodes* nodes) const;
  Digest node_key(const Nodes& nodes, uint32_t node_idx) const;
  std::span<const int32_t> node_tokens(const Nodes& nodes, uint32_t node_idx) const;
  BlockId find_below(uint32_t group, const Digest& key, std::span<const int32_t> tokens, const Nodes& nodes) const;
  PathEnd path_end_of(const PrefixMatch& match, size_t num_blocks) const;
  void extend_by_host(const Digest& identity, std::span<const int32_t> tokens, PrefixMatch* match, Nodes* nodes) const;
  GroupMatch::Part find_part(uint32_t group, const Nodes& nodes, uint32_t node_idx, uint32_t part) const;
  // Whether each number of nodes, up to all, is a beginning that the group can go on from; and the parts by entry, or
  // of states by node.
  std::vector<bool> usable_ends(uint32_t group, const Nodes& nodes, uint32_t num_nodes,
                                std::vector<GroupMatch::Part>* parts) const;
  void match_others(const Nodes& nodes, PrefixMatch* match) const;
  bool find_held(uint32_t group, const BlockTable& table, uint32_t num_tokens, uint32_t num_nodes,
                 GroupMatch* match) const;
  void take_over(uint32_t group, BlockTable& table, const PrefixMatch& match);
  void take_copy(uint32_t group, BlockTable& table, const GroupMatch::Part& part);
  void begin_from(uint32_t group, BlockTable& table, BlockId record, bool has_new_text);
  void learn_from(uint32_t group, const PrefixMatch& match);
  bool takes_place(uint32_t group, BlockId record, bool has_new_text) const;
  void keep_parts(std::span<BlockTable> tables, uint32_t node_idx);
  // The node behind so many tokens, if a checkpoint may be kept there and none is; kNoBlock: there is none.
  BlockId node_for_state(uint32_t group, std::span<const BlockTable> tables, uint32_t position) const;
  // The place of a checkpoint that stands, or would stand, behind `position` tokens of the tables' path.
  Checkpoints::Place place_of(uint32_t group, std::span<const BlockTable> tables, uint32_t position,
                              CheckpointKind kind) const;
  BlockId last_before(uint32_t group, std::span<const BlockTable> tables, uint32_t* position) const;
  void keep_last(std::span<const BlockTable> tables, uint32_t position);
  void pass(uint32_t group, std::span<const BlockTable> tables, uint32_t position, CheckpointKind kind);
  bool has_room(const Checkpoints::Place& place, uint32_t group);
  void attach_state(uint32_t group, std::span<BlockTable> tables, const SavedState& state, CheckpointKind kind);
  void attach_waiting(std::span<BlockTable> tables);
  BlockId newest_of(uint32_t group, std::span<const BlockTable> tables) const;
  void drop_newest(uint32_t group, std::span<BlockTable> tables);
  bool is_pending(uint32_t group, BlockId node) const;
  std::optional<BlockId> node_to_save(uint32_t group, std::span<const BlockTable> tables, uint32_t position) const;
  void release_states(uint32_t group, std::span<BlockTable> tables, bool forget);
  void evict_state(uint32_t group);
  void attach(uint32_t group, BlockId node, uint32_t part, BlockId block);
  void detach(uint32_t group, BlockId block);

  CacheGroups& groups_;
  Tiers& tiers_;
  const PrefixListeners& listeners_;
  std::unique_ptr<PrefixCache> cache_;  // of group 0
  std::vector<uint64_t> roots_;         // by block, of those in the cache
  std::vector<bool> is_forgotten_;      // by block: the cache hides it, and a sequence still holds it
  std::vector<bool> ends_prompt_;       // by block: it stands where the state before a prompt's end is kept
  std::vector<Digest> keys_;            // by block, of those in the cache; empty: nobody needs them
  std::vector<bool> worth_storing_;     // by block
  std::vector<bool> may_last_;          // by block, of those in the cache, with a host tier
  // With a disk, by group and block: the step (from 1) that kept it, while it is in saves_; 0: it is not.
  std::vector<std::vector<uint64_t>> save_steps_;
  std::deque<Save> saves_;                // by step; those whose step is another by now are gone
  uint64_t step_ = 1;                     // that is being made
  std::vector<GroupContents> contents_;   // of groups 1, 2, ...
  std::vector<Checkpoints> checkpoints_;  // of groups 1, 2, ...; those of blocks have none
  std::vector<Pending> pending_;
  std::vector<Read> reads_;
};

}  // namespace llmrt
