#include "core/kv/host_tier.h"

namespace llmrt {

BlockId HostTier::insert(const Digest& key, std::span<const int32_t> tokens, uint64_t root) {
  if (const BlockId found = index_.find(key, tokens); found != kNoBlock) {
    use(found);
    return kNoBlock;
  }
  if (pool_.num_free() == 0) return kNoBlock;
  const BlockId block = pool_.allocate();
  if (index_.contains(block)) index_.erase(block);
  index_.insert(key, tokens, block);
  pool_.set_keeps_content(block, true);
  from_disk_[block] = false;
  roots_[block] = root;
  held_.push_back(block);
  return block;
}

void HostTier::erase(const Digest& key, std::span<const int32_t> tokens) {
  const BlockId block = index_.find(key, tokens);
  if (block == kNoBlock) return;
  if (pins_[block] > 0) return index_.hide(block);
  if (pool_.references(block) > 0) return;
  index_.erase(block);
  pool_.set_keeps_content(block, false);
}

void HostTier::forget(uint64_t root) {
  for (BlockId block = 0; block < num_blocks(); ++block) {
    if (!index_.contains(block) || roots_[block] != root) continue;
    if (pool_.references(block) > 0) {
      index_.hide(block);
    } else {
      index_.erase(block);
      pool_.set_keeps_content(block, false);
    }
  }
}

void HostTier::hold(BlockId block) {
  pool_.retain(block);
  held_.push_back(block);
  from_disk_[block] = false;
}

void HostTier::use(BlockId block) {
  pool_.retain(block);
  pool_.release(block);
}

void HostTier::let_go_all() {
  for (const BlockId block : held_) pool_.release(block);
  held_.clear();
}

void HostTier::pin(BlockId block) {
  pool_.retain(block);
  ++pins_[block];
}

void HostTier::unpin(BlockId block) {
  LLMRT_CHECK(pins_[block] > 0, "a pin is taken back once");
  --pins_[block];
  pool_.release(block);
}

BlockId HostTier::reserve() {
  const BlockId block = pool_.allocate();
  if (index_.contains(block)) index_.erase(block);
  pins_[block] = 1;
  return block;
}

void HostTier::fill(BlockId block, const Digest& key, std::span<const int32_t> tokens, uint64_t root) {
  LLMRT_CHECK(!index_.contains(block), "a reserved block holds nothing");
  if (index_.find(key, tokens) == kNoBlock) {
    index_.insert(key, tokens, block);
    pool_.set_keeps_content(block, true);
    roots_[block] = root;
    from_disk_[block] = true;
  }
  unpin(block);
}

Status HostTier::check() const {
  std::vector<uint32_t> references = pins_;
  for (const BlockId block : held_) ++references[block];
  if (Status status = pool_.check_books(references); !status) return status;
  for (BlockId block = 0; block < num_blocks(); ++block) {
    if (pool_.keeps_content(block) == index_.contains(block)) continue;
    return broken_books("host block {}: pool and index do not agree", block);
  }
  return index_.check("host tier");
}

}  // namespace llmrt
