#include "core/kv/host_tier.h"

namespace llmrt {

BlockId HostTier::insert(const Digest& key, std::span<const int32_t> tokens, uint64_t root) {
  if (const BlockId found = index_.find(key, tokens); found != kNoBlock) {
    use(found);
    return kNoBlock;
  }
  if (pool_.num_free() == 0) return kNoBlock;
  const BlockId block = pool_.allocate();
  if (index_.contains(block)) take_out(block);
  put(block, key, tokens, root);
  from_disk_[block] = false;
  held_.push_back(block);
  return block;
}

void HostTier::erase(const Digest& key, std::span<const int32_t> tokens) {
  const BlockId block = index_.find(key, tokens);
  if (block == kNoBlock) return;
  if (pins_[block] > 0) return hide(block);
  if (pool_.references(block) > 0) return;
  take_out(block);
  pool_.set_keeps_content(block, false);
}

void HostTier::forget(uint64_t root) {
  for (BlockId block = 0; block < num_blocks(); ++block) {
    if (!index_.contains(block) || roots_[block] != root) continue;
    if (pool_.references(block) > 0) {
      hide(block);
    } else {
      take_out(block);
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
  if (index_.contains(block)) take_out(block);
  pins_[block] = 1;
  return block;
}

void HostTier::fill(BlockId block, const Digest& key, std::span<const int32_t> tokens, uint64_t root) {
  LLMRT_CHECK(!index_.contains(block), "a reserved block holds nothing");
  if (index_.find(key, tokens) == kNoBlock) {
    put(block, key, tokens, root);
    from_disk_[block] = true;
  }
  unpin(block);
}

void HostTier::put(BlockId block, const Digest& key, std::span<const int32_t> tokens, uint64_t root) {
  index_.insert(key, tokens, block);
  pool_.set_keeps_content(block, true);
  roots_[block] = root;
  is_hidden_[block] = false;
  if (listeners_) listeners_->stored(key);
}

void HostTier::take_out(BlockId block) {
  tell_gone(block);
  index_.erase(block);
}

void HostTier::hide(BlockId block) {
  tell_gone(block);
  index_.hide(block);
  is_hidden_[block] = true;
}

void HostTier::tell_gone(BlockId block) const {
  if (listeners_ && !is_hidden_[block]) listeners_->gone(PrefixTier::kHost, index_.key(block));
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
