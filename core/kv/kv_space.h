// The pools of all KV groups, and a sequence's tables in them (one per group). A sequence grows in all groups or in
// none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/checked_math.h"
#include "core/kv/block_pool.h"

namespace llmrt {

// Logical position to block, for one group: position p lies in blocks[p / block_tokens] at offset p % block_tokens.
struct BlockTable {
  std::vector<BlockId> blocks;
  uint32_t num_sent = 0;  // entries that the device's row state has
};

class KvSpace {
 public:
  explicit KvSpace(std::span<const KvPoolSize> sizes);

  uint32_t num_groups() const { return static_cast<uint32_t>(groups_.size()); }
  uint32_t num_blocks(uint32_t group) const { return groups_[group].pool.num_blocks(); }
  uint32_t num_free(uint32_t group) const { return groups_[group].pool.num_free(); }
  uint32_t blocks_for(uint32_t group, uint32_t num_tokens) const {
    return ceil_div(num_tokens, groups_[group].block_tokens);
  }

  // Tables with room reserved for `num_tokens`, no blocks yet.
  std::vector<BlockTable> make_tables(uint32_t num_tokens) const;
  // How many tokens the tables could hold if they took every free block.
  uint32_t capacity_tokens(std::span<const BlockTable> tables) const;
  // Appends blocks until the tables hold `num_tokens`. False when some group has too few; nothing has changed then.
  bool grow(std::span<BlockTable> tables, uint32_t num_tokens);
  // Gives all blocks back, last first; the tables are empty then.
  void release(std::span<BlockTable> tables);

  // BlockPool::check_books of every pool against the tables of all sequences.
  Status check_books(std::span<const std::span<const BlockTable>> sequences) const;

 private:
  struct Group {
    BlockPool pool;
    uint32_t block_tokens;
  };
  std::vector<Group> groups_;
};

}  // namespace llmrt
