// The books of one KV pool: which blocks are free, and how many tables hold each of the others. Dense records with
// embedded links, every call O(1), nothing allocated after construction. Ids only: the memory is the backend's.
//
// A freed block may be handed out at once, even while device work that reads it is in flight: the device's queue is in
// order, so the new owner's writes come after.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"

namespace llmrt {

using BlockId = uint32_t;

// One KvGroup's pool as the books see it.
struct KvPoolSize {
  uint32_t num_blocks = 0;
  uint32_t block_tokens = 16;
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
  uint32_t num_free() const { return num_free_; }
  uint32_t references(BlockId block) const { return records_[block].references; }

  // The block freed last, with one reference. There must be a free one.
  BlockId allocate();
  // One more table holds this live block.
  void retain(BlockId block);
  // One table fewer; at none the block is free. Callers give a table's blocks back last first, so that the next owner
  // gets them in the same order.
  void release(BlockId block);

  // The free list is whole (links agree both ways, only blocks without references, num_free() long), free + live = N,
  // and the references are those that were counted in the tables.
  Status check_books(std::span<const uint32_t> counted_references) const;

 private:
  static constexpr uint32_t kNone = ~0u;
  struct Record {
    uint32_t references = 0;
    uint32_t prev = kNone, next = kNone;  // in the free list
  };
  void push_free(BlockId block);
  void unlink(BlockId block);

  std::vector<Record> records_;
  uint32_t free_first_ = kNone;
  uint32_t num_free_ = 0;
};

}  // namespace llmrt
