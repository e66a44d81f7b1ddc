// The pools of all KV groups, and what a sequence takes of each. A sequence grows in all groups or in none.
//
// Groups of blocks hold keys and values by position. With a window, a token sees the last `window` positions alone, its
// own among them; blocks that lie wholly behind the window of the next token are given back while the sequence runs.
// Groups of states hold one record a sequence, whatever its length.
#pragma once

#include <span>
#include <vector>

#include "core/base/checked_math.h"
#include "core/kv/block_table.h"

namespace llmrt {

class CacheGroups {
 public:
  // Gives up content that was kept (BlockPool::set_keeps_content), so that a block may be handed out anew.
  class Keeper {
   public:
    // Loses this block; in a group of states one that the keeper chooses.
    virtual void lose(uint32_t group, BlockId block) = 0;

   protected:
    ~Keeper() = default;
  };

  explicit CacheGroups(std::span<const KvPoolSize> sizes);
  void set_keeper(Keeper* keeper) { keeper_ = keeper; }

  uint32_t size() const { return static_cast<uint32_t>(groups_.size()); }
  const KvPoolSize& shape(uint32_t group) const { return groups_[group].shape; }
  bool is_state(uint32_t group) const { return shape(group).kind == CacheKind::kState; }
  BlockPool& pool(uint32_t group) { return groups_[group].pool; }
  const BlockPool& pool(uint32_t group) const { return groups_[group].pool; }

  // Entries of the table of a sequence of so many tokens.
  uint32_t entries_for(uint32_t group, uint32_t num_tokens) const;
  // The first of them that the token at position num_tokens, or a later one, may read.
  uint32_t first_entry(uint32_t group, uint32_t num_tokens) const;
  // The most blocks that a sequence of at most so many tokens holds while it grows token by token.
  uint32_t blocks_for(uint32_t group, uint32_t num_tokens) const;
  // Whether the pools as a whole could hold such a sequence.
  bool can_hold(uint32_t num_tokens) const;

  // Tables with room reserved for `num_tokens`, no blocks yet.
  std::vector<BlockTable> make_tables(uint32_t num_tokens) const;
  // How many tokens the tables could hold if they took every free block.
  uint32_t capacity_tokens(std::span<const BlockTable> tables) const;
  // Appends blocks until the tables hold `num_tokens`. False when some group has too few; nothing has changed then.
  bool grow(std::span<BlockTable> tables, uint32_t num_tokens);
  // The first `num_tokens` positions are computed or in flight: what lies behind the next token's window is given back
  // when the step is complete, since its own tokens may still read it.
  void advance(std::span<BlockTable> tables, uint32_t num_tokens);
  void end_step();

  // Blocks of group 0 that move as many bytes as one block, or record, of the group; 1 where sizes are not known.
  double move_blocks(uint32_t group) const;

  // Checkpoints may stand behind every so many tokens; 0: no group has states.
  uint32_t place_tokens() const { return place_tokens_; }

  // A block for a table, with one reference. There must be one.
  BlockId allocate(uint32_t group);
  // Gives a table's blocks back, last first; it is empty then.
  void release(uint32_t group, BlockTable& table);

 private:
  struct Group {
    KvPoolSize shape;
    BlockPool pool;
  };
  struct Behind {
    uint32_t group;
    BlockId block;
  };
  std::vector<Group> groups_;
  uint32_t place_tokens_ = 0;
  std::vector<Behind> behind_;  // blocks that go with the step
  Keeper* keeper_ = nullptr;
};

}  // namespace llmrt
