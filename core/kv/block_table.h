// What a sequence holds in one KV group.
#pragma once

#include <vector>

#include "core/kv/block_pool.h"

namespace llmrt {

// A record that holds the state behind `position` tokens.
struct SavedState {
  BlockId record = kNoBlock;
  uint32_t position = 0;
};

// A group of blocks: position p lies in blocks[p / block_tokens] at offset p % block_tokens. A group of states: the one
// entry is the sequence's record.
struct BlockTable {
  std::vector<BlockId> blocks;
  uint32_t first = 0;       // entries before it are kNoBlock: they lie behind the window
  uint32_t num_sent = 0;    // entries that the device's row state has
  uint32_t num_cached = 0;  // of group 0: leading blocks that stand in the prefix cache
  uint32_t num_tokens = 0;  // that are computed or in flight (CacheGroups::advance)

  // In a group of states:
  BlockId source =
      kNoBlock;            // held: the checkpoint that its first step reads in place of its own record, until planned
  SavedState waiting;      // held: a checkpoint whose last token is not known yet, so that it has no node
  SavedState newest;       // the last checkpoint that it left behind its answer; the cache's
  uint32_t num_turns = 0;  // how often its conversation has gone on from a checkpoint

  uint32_t num_held() const { return static_cast<uint32_t>(blocks.size()) - first; }
};

}  // namespace llmrt
