#include "core/kv/block_pool.h"

namespace llmrt {

BlockPool::BlockPool(uint32_t num_blocks) : records_(num_blocks) {
  for (BlockId block = num_blocks; block-- > 0;) push_free(block);  // block 0 goes first
}

BlockId BlockPool::allocate() {
  LLMRT_CHECK(num_free_ > 0, "allocate from an empty pool");
  const BlockId block = free_first_;
  unlink(block);
  records_[block].references = 1;
  return block;
}

void BlockPool::retain(BlockId block) {
  LLMRT_CHECK(records_[block].references > 0, "retain of a free block");
  ++records_[block].references;
}

void BlockPool::release(BlockId block) {
  LLMRT_CHECK(records_[block].references > 0, "release of a free block");
  if (--records_[block].references == 0) push_free(block);
}

void BlockPool::push_free(BlockId block) {
  records_[block].prev = kNone;
  records_[block].next = free_first_;
  if (free_first_ != kNone) records_[free_first_].prev = block;
  free_first_ = block;
  ++num_free_;
}

void BlockPool::unlink(BlockId block) {
  Record& record = records_[block];
  if (record.prev != kNone) {
    records_[record.prev].next = record.next;
  } else {
    free_first_ = record.next;
  }
  if (record.next != kNone) records_[record.next].prev = record.prev;
  record.prev = record.next = kNone;
  --num_free_;
}

Status BlockPool::check_books(std::span<const uint32_t> counted_references) const {
  uint32_t listed = 0;
  uint32_t prev = kNone;
  for (BlockId block = free_first_; block != kNone; prev = block, block = records_[block].next) {
    if (records_[block].prev != prev) return broken_books("free list: block {}: links disagree", block);
    if (records_[block].references != 0) return broken_books("free list: block {} has references", block);
    if (++listed > num_blocks()) return broken_books("free list: it has a ring");
  }
  if (listed != num_free_) return broken_books("free list: expected {} blocks, found {}", num_free_, listed);
  uint32_t live = 0;
  for (BlockId block = 0; block < num_blocks(); ++block) {
    const uint32_t references = records_[block].references;
    live += references > 0;
    if (references == counted_references[block]) continue;
    return broken_books("block {}: expected {} references (tables), found {}", block, counted_references[block],
                        references);
  }
  if (live + num_free_ == num_blocks()) return {};
  return broken_books("expected {} blocks, found {} free + {} live", num_blocks(), num_free_, live);
}

}  // namespace llmrt
