// The pools of all KV groups, a sequence's tables in them (one per group), and the prefix cache over them. A sequence
// grows in all groups or in none.
//
// Where there is one group a table may begin with blocks that other tables hold too: they are full and not written any
// more. Of a block that is full only in part the filled slots are copied (PrefixMatch), so what is written next is
// always the sequence's own. With a prefix cache (one group only) a table begins with blocks that stand in the cache,
// and only they are shared.
//
// With a host tier (it needs the cache) a cached block that the pool hands out again may be stored there first, and a
// match goes on with blocks that can be loaded. What is to be moved is collected for the step that is being made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/checked_math.h"
#include "core/kv/block_pool.h"
#include "core/kv/host_tier.h"
#include "core/kv/prefix_cache.h"

namespace llmrt {

// Logical position to block, for one group: position p lies in blocks[p / block_tokens] at offset p % block_tokens.
struct BlockTable {
  std::vector<BlockId> blocks;
  uint32_t num_sent = 0;    // entries that the device's row state has
  uint32_t num_cached = 0;  // leading blocks that stand in the prefix cache
};

// Between the pool and the host's pool, whole blocks.
struct BlockMove {
  BlockId source, target;
};

struct HostTierSize {
  uint32_t num_blocks = 0;  // 0 = no such tier
  uint32_t stores_max = 0;  // of one step: what comes on top is lost instead
};

class KvSpace {
 public:
  explicit KvSpace(std::span<const KvPoolSize> sizes, PrefixCacheKind cache = PrefixCacheKind::kOff,
                   const HostTierSize& host = {});

  uint32_t num_groups() const { return static_cast<uint32_t>(groups_.size()); }
  uint32_t num_blocks(uint32_t group) const { return groups_[group].pool.num_blocks(); }
  // Cached blocks that nobody holds count as free.
  uint32_t num_free(uint32_t group) const { return groups_[group].pool.num_free(); }
  uint32_t num_cached(uint32_t group) const { return groups_[group].pool.num_cached(); }
  uint32_t blocks_for(uint32_t group, uint32_t num_tokens) const {
    return ceil_div(num_tokens, groups_[group].block_tokens);
  }

  // Whether the pools as a whole could.
  bool can_hold(uint32_t num_tokens) const;

  // Tables with room reserved for `num_tokens`, no blocks yet.
  std::vector<BlockTable> make_tables(uint32_t num_tokens) const;
  // How many tokens the tables could hold if they took every free block.
  uint32_t capacity_tokens(std::span<const BlockTable> tables) const;
  // Appends blocks until the tables hold `num_tokens`. False when some group has too few; nothing has changed then.
  bool grow(std::span<BlockTable> tables, uint32_t num_tokens);
  // Gives all blocks back, last first; the tables are empty then. With `forget`, what only these tables know of is not
  // kept in the cache: the content cannot be trusted.
  void release(std::span<BlockTable> tables, bool forget = false);

  // ---- shared beginnings: of the one group ----
  bool has_cache() const { return cache_ != nullptr; }
  uint32_t block_tokens() const { return groups_[0].block_tokens; }
  // The longest beginning of `tokens` that is known. Nothing when there is no cache.
  PrefixMatch match(const Digest& identity, std::span<const int32_t> tokens) const;
  // Of the blocks of a match those that somebody holds: they cost no free block.
  uint32_t num_live(const PrefixMatch& match) const;
  // The same of the block that would be copied from.
  bool is_live(BlockId block) const { return groups_[0].pool.references(block) > 0; }
  // The first `num_tokens` positions of these tables, which are computed or in flight, as a beginning for other tables.
  // Nothing when there are several groups, or when they cannot be trusted (see forget).
  PrefixMatch match(std::span<const BlockTable> tables, uint32_t num_tokens) const;
  // Whether others may begin with what these tables have in the cache, or nothing of them is there yet.
  bool is_trusted(std::span<const BlockTable> tables) const {
    return tables[0].num_cached == 0 || !is_forgotten_[tables[0].blocks[0]];
  }
  // Empty tables begin with the match's full blocks.
  void share(std::span<BlockTable> tables, const PrefixMatch& match);
  // A block that is to be copied from stays what it is until it is unpinned: it counts as held.
  void pin(BlockId block) { groups_[0].pool.retain(block); }
  void unpin(BlockId block) { release(groups_[0], block, /*forget=*/false); }
  // `tokens` are known and their positions computed or in flight: blocks that they fill go into the cache. A block that
  // is there already takes the place of the table's own, which is given back (and must be sent to the device anew).
  void keep(std::span<BlockTable> tables, const Digest& identity, std::span<const int32_t> tokens);
  // Stands for the identity and the tokens of a text's first block, and so for all blocks of the cache and of the host
  // tier that begin with it. Of tables of which nothing is cached: 0.
  uint64_t root(std::span<const BlockTable> tables) const;
  uint64_t root(BlockId block) const { return cache_ && cache_->contains(block) ? roots_[block] : 0; }
  // What stands behind this root cannot be trusted, and no match comes upon it any more: in both tiers it goes at once,
  // and where somebody holds it, when he lets go. O(blocks).
  void forget(uint64_t root);

  // ---- the host tier ----
  const HostTier* host() const { return host_.get(); }
  // Whether the cached blocks of these tables shall be stored when the pool hands them out again.
  void set_worth_storing(std::span<const BlockTable> tables, bool worth);
  // Tables that begin with the match's blocks grow by its host blocks, which are to be loaded. There must be room.
  void load(std::span<BlockTable> tables, const PrefixMatch& match);
  // What the step that is being made has to do first: the stores, then the loads.
  std::span<const BlockMove> stores() const { return stores_; }
  std::span<const BlockMove> loads() const { return loads_; }
  // They are in a plan.
  void forget_moves();

  // BlockPool::check_books of every pool against the tables of all sequences; no block that is still written is in two
  // tables; and the cache's: what it knows is what the pool keeps, tables begin with it, only that is shared, and what
  // cannot be trusted is held.
  struct Holder {
    std::span<const BlockTable> tables;
    uint32_t num_tokens;  // that the tables hold
  };
  Status check_books(std::span<const Holder> sequences) const;

 private:
  struct Group {
    BlockPool pool;
    uint32_t block_tokens;
  };
  BlockId allocate(Group& group);
  void release(Group& group, BlockId block, bool forget);
  void store(BlockId block);
  void drop(BlockId block);
  Status check_cache(std::span<const Holder> sequences) const;

  std::vector<Group> groups_;
  std::unique_ptr<PrefixCache> cache_;  // of groups_[0]
  std::vector<uint64_t> roots_;         // by block, of those in the cache
  std::vector<bool> is_forgotten_;      // by block: in the cache and hidden, since somebody holds it

  std::unique_ptr<HostTier> host_;
  uint32_t stores_max_ = 0;
  std::vector<Digest> keys_;         // by block, of those in the cache: the key in the host tier
  std::vector<bool> worth_storing_;  // by block
  std::vector<BlockMove> stores_, loads_;
};

}  // namespace llmrt
