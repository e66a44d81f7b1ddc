// Which blocks of one KV pool hold what: full blocks by their tokens and everything before them. Two implementations:
// a radix tree over blocks, which also finds the common part of a block that differs, and a flat table of hashes.
// Neither owns blocks, counts references or decides what is lost: KvSpace does.
//
// `identity` names what makes keys and values beside the tokens: equal tokens under another identity are not a hit. It
// is a digest of model, RoPE, KV dtype, numeric mode (engine), adapter and the client's cache salt (request). Tokens
// are compared on every hit, whatever a hash says.
//
// A block's parent is the one before it in its sequence. The caller keeps this order: a parent is held as long as one
// of its children is, and unheld blocks are erased in the order in which they were let go, children first.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/sha256.h"
#include "core/kv/block_pool.h"

namespace llmrt {

// What a group beside group 0 has of a match.
struct GroupMatch {
  struct Part {
    BlockId block = kNoBlock;
    bool on_host = false;        // of the host tier: it may be loaded
    uint32_t copy_tokens = 0;    // else: so many first tokens may be copied; 0: the block itself is shared
    bool is_checkpoint = false;  // a record that the first step may begin from, and that stays
  };
  uint32_t first_entry = 0;  // of the table: what lies before is behind the window
  std::vector<Part> parts;   // entries from there on; of a group of states the one record to start from
};

// What follows the known beginning of some tokens in the cache.
enum class PathEnd : uint8_t {
  kUnknown,
  kWhole,  // all full blocks of the tokens are known
  kLeaf,   // nothing: they are the first that go on from there
  kTurn,   // other tokens, where a prompt ended: the conversation goes on without the answer that it got there
  kParts,  // other tokens, elsewhere
};

// The longest known beginning of some tokens, in group 0 and, where there are others, in all of them.
struct PrefixMatch {
  std::vector<BlockId> blocks;       // full ones, in order
  std::vector<BlockId> host_blocks;  // full ones behind them, of the host tier: they may be loaded
  BlockId partial_block = kNoBlock;  // its first `partial_tokens` tokens come next: they may be copied
  uint32_t partial_tokens = 0;
  std::vector<GroupMatch> others;  // of groups 1, 2, ...
  uint32_t num_path = 0;           // full blocks of group 0 that are known, whether or not the others can go on there
  PathEnd path_end = PathEnd::kUnknown;

  void drop_partial() {
    partial_block = kNoBlock;
    partial_tokens = 0;
  }
  // Blocks and records of all groups that are to be loaded.
  uint32_t num_loads() const {
    uint32_t count = static_cast<uint32_t>(host_blocks.size());
    for (const GroupMatch& other : others)
      for (const GroupMatch::Part& part : other.parts) count += part.on_host;
    return count;
  }
  uint32_t num_full() const { return static_cast<uint32_t>(blocks.size() + host_blocks.size()); }
  uint32_t num_tokens(uint32_t block_tokens) const { return num_full() * block_tokens + partial_tokens; }
};

class PrefixCache {
 public:
  virtual ~PrefixCache() = default;

  virtual PrefixMatch match(const Digest& identity, std::span<const int32_t> tokens) const = 0;

  // `block` holds these tokens (a block full of them), behind `parent` (kNoBlock: it is a sequence's first; else a
  // block of this cache). Returns the block that stands for them: `block`, or one that was there before.
  virtual BlockId insert(const Digest& identity, BlockId parent, std::span<const int32_t> tokens, BlockId block) = 0;

  virtual bool contains(BlockId block) const = 0;
  // Whether blocks behind this one would lose their parent.
  virtual bool has_children(BlockId block) const = 0;
  // Whether has_children() tells which blocks the text goes on behind; else it is always false.
  virtual bool knows_children() const = 0;
  // The block is about to hold something else. It must be there, without children.
  virtual void erase(BlockId block) = 0;
  // The block stays, but neither match nor insert comes upon it any more, nor upon what is inserted behind it. Blocks
  // behind it are hidden too, after it.
  virtual void hide(BlockId block) = 0;

  virtual uint32_t size() const = 0;
  // What a block of the cache holds.
  virtual std::span<const int32_t> tokens(BlockId block) const = 0;
  // An error when its own structure does not hold together. O(size).
  virtual Status check() const = 0;
};

enum class PrefixCacheKind : uint8_t { kOff, kRadix, kHashed };

// Null for kOff. All memory is taken here.
std::unique_ptr<PrefixCache> make_prefix_cache(PrefixCacheKind kind, const KvPoolSize& size);

}  // namespace llmrt
