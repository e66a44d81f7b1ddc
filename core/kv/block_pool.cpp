#include "core/kv/block_pool.h"

namespace llmrt {

BlockPool::BlockPool(uint32_t num_blocks) : records_(num_blocks) {
  for (BlockId block = num_blocks; block-- > 0;) link(block);  // block 0 goes first
}

BlockId BlockPool::next() const {
  return free_.size > 0 ? free_.first : cached_.first;
}

BlockId BlockPool::allocate() {
  LLMRT_CHECK(num_free() > 0, "allocate from an empty pool");
  const BlockId block = next();
  unlink(block);
  records_[block].keeps_content = false;
  records_[block].references = 1;
  note_held();
  return block;
}

void BlockPool::retain(BlockId block) {
  Record& record = records_[block];
  LLMRT_CHECK(record.references > 0 || record.keeps_content, "retain of a free block");
  if (record.references == 0) unlink(block);
  ++record.references;
  note_held();
}

void BlockPool::release(BlockId block) {
  LLMRT_CHECK(records_[block].references > 0, "release of a free block");
  if (--records_[block].references == 0) link(block);
}

void BlockPool::set_keeps_content(BlockId block, bool keeps) {
  const bool is_listed = records_[block].references == 0;
  if (is_listed) unlink(block);
  records_[block].keeps_content = keeps;
  if (is_listed) link(block);
}

// A free block goes to the front of its list, a cached one to the end.
void BlockPool::link(BlockId block) {
  List& list = list_of(block);
  Record& record = records_[block];
  const bool at_end = record.keeps_content;
  record.prev = at_end ? list.last : kNone;
  record.next = at_end ? kNone : list.first;
  (record.prev == kNone ? list.first : records_[record.prev].next) = block;
  (record.next == kNone ? list.last : records_[record.next].prev) = block;
  ++list.size;
}

void BlockPool::unlink(BlockId block) {
  List& list = list_of(block);
  Record& record = records_[block];
  (record.prev == kNone ? list.first : records_[record.prev].next) = record.next;
  (record.next == kNone ? list.last : records_[record.next].prev) = record.prev;
  record.prev = record.next = kNone;
  --list.size;
}

Status BlockPool::check_list(const char* name, const List& list, bool keeps_content) const {
  uint32_t listed = 0;
  uint32_t prev = kNone;
  for (BlockId block = list.first; block != kNone; prev = block, block = records_[block].next) {
    const Record& record = records_[block];
    if (record.prev != prev) return broken_books("{} list: block {}: links disagree", name, block);
    if (record.references != 0) return broken_books("{} list: block {} has references", name, block);
    if (record.keeps_content != keeps_content)
      return broken_books("{} list: block {} is in the wrong one", name, block);
    if (++listed > num_blocks()) return broken_books("{} list: it has a ring", name);
  }
  if (prev != list.last) return broken_books("{} list: expected {} at its end, found {}", name, list.last, prev);
  if (listed != list.size) return broken_books("{} list: expected {} blocks, found {}", name, list.size, listed);
  return {};
}

Status BlockPool::check_books(std::span<const uint32_t> counted_references) const {
  if (Status status = check_list("free", free_, false); !status) return status;
  if (Status status = check_list("cached", cached_, true); !status) return status;
  uint32_t live = 0;
  for (BlockId block = 0; block < num_blocks(); ++block) {
    const uint32_t references = records_[block].references;
    live += references > 0;
    if (references == counted_references[block]) continue;
    return broken_books("block {}: expected {} references (tables), found {}", block, counted_references[block],
                        references);
  }
  if (live + num_free() == num_blocks()) return {};
  return broken_books("expected {} blocks, found {} free + {} cached + {} live", num_blocks(), free_.size, cached_.size,
                      live);
}

}  // namespace llmrt
