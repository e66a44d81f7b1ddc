// The books of the host's pool: copies of full blocks that the device pool had to give up, by the digest of everything
// up to their end. The longest unused goes first. Ids only: the memory is the backend's.
//
// What the step that is being made reads or writes is held until the step is complete: its stores run side by side and
// before its loads, so neither may have the block of another move as its target. What a disk reads or writes is pinned
// until the disk says so.
#pragma once

#include <span>
#include <vector>

#include "core/kv/block_index.h"
#include "core/kv/block_pool.h"
#include "core/kv/prefix_listener.h"

namespace llmrt {

class HostTier {
 public:
  // `listeners`: are told of what is found here; null: nobody is. They outlive it.
  explicit HostTier(const KvPoolSize& size, const PrefixListeners* listeners = nullptr)
      : listeners_(listeners),
        pool_(size.num_blocks),
        index_(size),
        roots_(size.num_blocks),
        pins_(size.num_blocks),
        from_disk_(size.num_blocks),
        is_hidden_(size.num_blocks) {}

  uint32_t num_blocks() const { return pool_.num_blocks(); }
  uint32_t num_used() const { return index_.size(); }

  // The block that holds these tokens under that key, or kNoBlock.
  BlockId find(const Digest& key, std::span<const int32_t> tokens) const { return index_.find(key, tokens); }
  // Where to store such content now, held. kNoBlock when it is there already (now the last used) or when all blocks are
  // held. `root`: of the text that it belongs to (KvSpace::root).
  BlockId insert(const Digest& key, std::span<const int32_t> tokens, uint64_t root = 0);
  // A block with this content cannot be trusted any more. Does nothing when none is there, or when the step holds it:
  // then the sequence that reads it ends too.
  void erase(const Digest& key, std::span<const int32_t> tokens);
  // Nothing of these texts is found any more.
  void forget(uint64_t root);

  void hold(BlockId block);
  // The one held last is the last used then.
  void let_go_all();

  // ---- for a disk below ----
  uint32_t num_free() const { return pool_.num_free(); }  // cached ones among them
  // It is the last used now.
  void use(BlockId block);
  // A block of the tier stays what it is until it is unpinned.
  void pin(BlockId block);
  void unpin(BlockId block);
  // A pinned block that holds nothing; there must be a free one. Then fill() says what it holds, and it is unpinned, or
  // unpin() that it is free again. Where such content stands already the block is free again, too.
  BlockId reserve();
  void fill(BlockId block, const Digest& key, std::span<const int32_t> tokens, uint64_t root);
  // Whether a disk has filled it, and it was not held since.
  bool is_from_disk(BlockId block) const { return from_disk_[block]; }

  // BlockPool's and the index's, and they agree.
  Status check() const;

 private:
  void put(BlockId block, const Digest& key, std::span<const int32_t> tokens, uint64_t root);
  void take_out(BlockId block);
  void hide(BlockId block);
  void tell_gone(BlockId block) const;

  const PrefixListeners* const listeners_;
  BlockPool pool_;
  BlockIndex index_;
  std::vector<uint64_t> roots_;  // by block, of those in the index
  std::vector<BlockId> held_;
  std::vector<uint32_t> pins_;   // by block
  std::vector<bool> from_disk_;  // by block
  std::vector<bool> is_hidden_;  // by block, of those in the index
};

}  // namespace llmrt
