// What the checkpoints of one group of states are worth to the cache, and so which of them goes first.
//
// A checkpoint is a record of the group's pool that a node of the prefix cache holds: the state behind exactly the
// tokens of the node's path. All records of a pool have the same size, so its worth is what a hit spares: the tokens
// from the next checkpoint before it on the path, times its uses so far. The least goes first; what goes sets the age,
// and new worths are counted from there, so that one that was used often and is not used any more goes too
// (GreedyDual-Size with Frequency: Cherkasova, Improving WWW Proxies Performance, 1998).
//
// Owns worths and counts by record. A record is the pool's, where it stands GroupContents'. No errors. Allocates
// nothing after construction; O(1), but for least(). The engine's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/kv/block_pool.h"

namespace llmrt {

struct CheckpointCounts {
  uint64_t num_kept = 0;     // made so far
  uint64_t num_hits = 0;     // sequences that began from one
  uint64_t num_evicted = 0;  // given up for others, or gone with their blocks
};

class Checkpoints {
 public:
  explicit Checkpoints(uint32_t num_records) : worths_(num_records) {}

  // The record becomes one, `spared_tokens` behind the one before it. `is_answer`: behind an answer, from which the
  // next turn of a conversation goes on.
  void add(BlockId record, uint32_t spared_tokens, bool is_answer);
  // A sequence begins from it.
  void hit(BlockId record);
  // It gives way to others.
  void evict(BlockId record);
  // The same conversation has gone on behind it: nothing more is expected of it.
  void set_passed(BlockId record);

  bool is_answer(BlockId record) const { return worths_[record].is_answer; }
  bool is_used(BlockId record) const { return worths_[record].num_uses > 1; }
  // The cached record that is worth least, there is one; among equal ones that unheld for longest.
  BlockId least(const BlockPool& pool) const;

  const CheckpointCounts& counts() const { return counts_; }

 private:
  struct Worth {
    uint64_t goes_at = 0;  // the age at which it is the next to go
    uint32_t spared_tokens = 0;
    uint32_t num_uses = 0;  // its making counts as one
    bool is_answer = false;
  };
  void rate(Worth& worth) const { worth.goes_at = age_ + uint64_t{worth.spared_tokens} * worth.num_uses; }

  std::vector<Worth> worths_;  // by record
  uint64_t age_ = 0;           // of the last one that went
  CheckpointCounts counts_;
};

}  // namespace llmrt
