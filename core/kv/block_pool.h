// The books of one KV pool: which blocks are free, and how many tables hold each of the others. Dense records with
// embedded links, every call O(1), nothing allocated after construction. Ids only: the memory is the backend's.
//
// A block whose content stands in the prefix cache stays there when nobody holds it: it is then cached, may be held
// again, and is handed out only when nothing else is free, longest unheld first. free + cached + live = N.
//
// A freed block may be handed out at once, even while device work that reads it is in flight: the device's queue is in
// order, so the new owner's writes come after.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"

namespace llmrt {

using BlockId = uint32_t;
inline constexpr BlockId kNoBlock = ~0u;

// What a KV group keeps of a sequence: blocks of keys and values, or one record of fixed size, the state behind its
// last token.
enum class CacheKind : uint8_t { kBlocks, kState };

// One KvGroup's pool as the books see it. A pool of states has a record where others have a block: one a running
// sequence, and checkpoints from which a sequence with the same beginning can start.
struct KvPoolSize {
  uint32_t num_blocks = 0;
  uint32_t block_tokens = 16;  // of a pool of states: checkpoints may stand behind every so many tokens
  CacheKind kind = CacheKind::kBlocks;
  uint32_t window = 0;           // of blocks: how many positions a token sees, its own among them; 0 = all
  uint32_t num_host_blocks = 0;  // of the host's pool (of group 0: HostTierSize)
  uint64_t block_bytes = 0;      // what moving a block or a record moves; 0 = not known
};

// An entry that does not balance: our own fault, told as a value so that a server can report it and live on.
template <typename... Args>
[[nodiscard]] Error broken_books(fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorCode::kInternal, "books: " + fmt::format(format, std::forward<Args>(args)...)};
}

class BlockPool {
 public:
  explicit BlockPool(uint32_t num_blocks);

  uint32_t num_blocks() const { return static_cast<uint32_t>(records_.size()); }
  // What allocate() could hand out: free and cached blocks.
  uint32_t num_free() const { return free_.size + cached_.size; }
  uint32_t num_cached() const { return cached_.size; }
  uint32_t num_held_most() const { return num_held_most_; }  // at once, since construction
  uint32_t references(BlockId block) const { return records_[block].references; }
  bool keeps_content(BlockId block) const { return records_[block].keeps_content; }

  // The block freed last, else the one that has been cached for longest (its content is lost); with one reference.
  // There must be one.
  BlockId allocate();
  // What allocate() would hand out; kNoBlock: nothing.
  BlockId next() const;
  // One more table holds this live or cached block.
  void retain(BlockId block);
  // One table fewer; at none the block is free or cached. Callers give a table's blocks back last first, so that the
  // next owner gets them in the same order, and of a cached sequence the end is lost before its beginning.
  void release(BlockId block);
  // Whether the block is to be cached, not free, when nobody holds it.
  void set_keeps_content(BlockId block, bool keeps);

  // The cached blocks that nobody holds, in the order in which they would be handed out; kNoBlock at the end.
  BlockId first_cached() const { return cached_.first; }
  BlockId next_cached(BlockId block) const { return records_[block].next; }

  // Both lists are whole (links agree both ways, only blocks without references, as long as counted),
  // free + cached + live = N, and the references are those that were counted in the tables.
  Status check_books(std::span<const uint32_t> counted_references) const;

 private:
  static constexpr uint32_t kNone = kNoBlock;
  struct Record {
    uint32_t references = 0;
    bool keeps_content = false;
    uint32_t prev = kNone, next = kNone;  // in one of the lists, while nobody holds it
  };
  struct List {
    uint32_t first = kNone, last = kNone;
    uint32_t size = 0;
  };
  List& list_of(BlockId block) { return records_[block].keeps_content ? cached_ : free_; }
  void link(BlockId block);
  void unlink(BlockId block);
  void note_held() { num_held_most_ = std::max(num_held_most_, num_blocks() - num_free()); }
  Status check_list(const char* name, const List& list, bool keeps_content) const;

  std::vector<Record> records_;
  List free_;    // the first goes first
  List cached_;  // the same: by the time of release
  uint32_t num_held_most_ = 0;
};

}  // namespace llmrt
