#include "core/kv/host_tier.h"

namespace llmrt {

BlockId HostTier::insert(const Digest& key, std::span<const int32_t> tokens, uint64_t root) {
  if (const BlockId found = index_.find(key, tokens); found != kNoBlock) {
    pool_.retain(found);
    pool_.release(found);
    return kNoBlock;
  }
  if (pool_.num_free() == 0) return kNoBlock;
  const BlockId block = pool_.allocate();
  if (index_.contains(block)) index_.erase(block);
  index_.insert(key, tokens, block);
  pool_.set_keeps_content(block, true);
  roots_[block] = root;
  held_.push_back(block);
  return block;
}

void HostTier::erase(const Digest& key, std::span<const int32_t> tokens) {
  const BlockId block = index_.find(key, tokens);
  if (block == kNoBlock || pool_.references(block) > 0) return;
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
}

void HostTier::let_go_all() {
  for (const BlockId block : held_) pool_.release(block);
  held_.clear();
}

Status HostTier::check() const {
  std::vector<uint32_t> references(num_blocks());
  for (const BlockId block : held_) ++references[block];
  if (Status status = pool_.check_books(references); !status) return status;
  for (BlockId block = 0; block < num_blocks(); ++block) {
    if (pool_.keeps_content(block) == index_.contains(block)) continue;
    return broken_books("host block {}: pool and index do not agree", block);
  }
  return index_.check("host tier");
}

}  // namespace llmrt
