// What the checkpoints of one group of states are worth to the cache, and so which of them goes first.
//
// A checkpoint is a record of the group's pool that a node of the prefix cache holds: the state behind exactly the
// tokens of the node's path. All records of a pool have the same size, so its worth is what a hit spares: the tokens
// from the next checkpoint before it on the path (its parent), times its uses so far. When the parent goes, or is
// passed, it spares the parent's tokens, too. The least goes first; what goes sets the age, and new worths are counted
// from there, so that one that was used often and is not used any more goes too (GreedyDual-Size with Frequency:
// Cherkasova, Improving WWW Proxies Performance, 1998).
//
// A conversation has one place from which it goes on: its newest. Those before it are *passed* when a newer one is
// kept, and go before all others. Whether the newest is the one behind the answer or the one before the prompt's end
// depends on the clients: some send the answer back as it was, some without its thoughts. That is learned.
//
// Owns worths and counts by record. A record is the pool's, where it stands GroupContents'. No errors. Allocates
// nothing after construction. add(), hit() and stays() are O(1), the others O(records). The engine's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/kv/block_pool.h"
#include "core/kv/group_contents.h"
#include "core/kv/prefix_cache.h"

namespace llmrt {

struct CheckpointCounts {
  uint64_t num_kept = 0;     // made so far
  uint64_t num_hits = 0;     // sequences that began from one
  uint64_t num_evicted = 0;  // given up for others, or gone with their blocks
};

enum class CheckpointKind : uint8_t {
  kShared,   // where the paths of several part
  kPassage,  // on the way: an interval of a prompt, or where a sequence ended or yielded
  kPrompt,   // before a prompt's end
  kAnswer,   // behind an answer
};

class Checkpoints {
 public:
  explicit Checkpoints(uint32_t num_records) : worths_(num_records) {}

  struct Place {
    uint32_t position = 0;
    BlockId parent = kNoBlock;  // the nearest one before it on its path that is not passed
    CheckpointKind kind = CheckpointKind::kShared;
    uint32_t num_turns = 0;  // how often the conversation has gone on from earlier ones: they are uses of this one
  };
  // Whether one of that place would stay when the least of the pool (there is one) gives way to it. If not it counts as
  // one that was kept and went at once.
  bool stays(const Place& place, BlockId least);
  void add(BlockId record, const Place& place);
  // A sequence begins from it.
  void hit(BlockId record);
  // It is none any more.
  void remove(BlockId record);
  // To be told before remove(): it gives way to others.
  void evict(BlockId record);
  // Its conversation goes on from it, if from any: the sequence that has left it has ended, or keeps none behind it.
  void set_last(BlockId record);
  // The same conversation has gone on behind it: nothing more is expected of it, unless several have begun from it.
  void set_passed(BlockId record);

  // A sequence begins behind `source` (kNoBlock: at its start). `is_short`: its tokens are known for longer, and so it
  // would begin later if a checkpoint were there. Tells answers that are gone on from from those that are not.
  void learn(BlockId source, bool is_short, PathEnd end);
  // Whether conversations go on behind answers as they were.
  bool answers_go_on() const { return answer_weight_ >= kAnswerGoesOn; }

  // How often its conversation has gone on, with a sequence that begins from it.
  uint32_t num_turns(BlockId record) const { return worths_[record].place.num_turns + worths_[record].num_hits; }
  CheckpointKind kind(BlockId record) const { return worths_[record].place.kind; }
  bool is_passed(BlockId record) const { return worths_[record].is_passed; }
  bool is_used(BlockId record) const { return worths_[record].num_hits > 0; }
  // More than one sequence has begun from it, or is expected to.
  bool is_shared(BlockId record) const {
    return kind(record) == CheckpointKind::kShared || worths_[record].num_hits > 1;
  }
  // Nobody would miss it.
  bool is_worthless(BlockId record) const { return worths_[record].goes_at <= age_; }
  // The cached record that is worth least, there is one; among equal ones that unheld for longest.
  BlockId least(const BlockPool& pool) const;

  const CheckpointCounts& counts() const { return counts_; }
  // It knows of those records alone that stand somewhere, and parents stand before them.
  Status check(const GroupContents& contents) const;

 private:
  static constexpr uint32_t kWeightOne = 256, kAnswerGoesOn = 192, kWeightFirst = 184;

  struct Worth {
    Place place;
    uint64_t age = 0;      // when it was used last
    uint64_t goes_at = 0;  // the age at which it is the next to go
    uint32_t spared_tokens = 0;
    uint32_t num_hits = 0;
    bool is_there = false, is_passed = false, is_last = false;
  };
  uint64_t value(const Place& place, uint32_t spared_tokens, uint32_t num_hits, bool is_last) const;
  uint32_t spared_by(const Place& place) const;
  void rate(Worth& worth) const;
  void bypass(BlockId record);

  std::vector<Worth> worths_;              // by record
  uint64_t age_ = 0;                       // of the last one that went
  uint32_t answer_weight_ = kWeightFirst;  // how likely one behind an answer is used, of kWeightOne
  CheckpointCounts counts_;
};

}  // namespace llmrt
