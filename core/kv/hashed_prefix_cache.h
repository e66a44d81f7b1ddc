// The flat table of digests as a prefix cache. Knows whole blocks only, and no order among them: a block that went
// leaves those behind it out of reach until it is there again.
#pragma once

#include "core/kv/block_index.h"
#include "core/kv/prefix_cache.h"

namespace llmrt {

class HashedPrefixCache final : public PrefixCache {
 public:
  explicit HashedPrefixCache(const KvPoolSize& size) : block_tokens_(size.block_tokens), index_(size) {}

  PrefixMatch match(const Digest& identity, std::span<const int32_t> tokens) const override;
  BlockId insert(const Digest& identity, BlockId parent, std::span<const int32_t> tokens, BlockId block) override;
  bool contains(BlockId block) const override { return index_.contains(block); }
  bool has_children(BlockId) const override { return false; }
  bool knows_children() const override { return false; }
  void erase(BlockId block) override { index_.erase(block); }
  void hide(BlockId block) override { index_.hide(block); }
  uint32_t size() const override { return index_.size(); }
  std::span<const int32_t> tokens(BlockId block) const override { return index_.tokens(block); }
  Status check() const override { return index_.check("prefix table"); }

 private:
  const uint32_t block_tokens_;
  BlockIndex index_;
};

}  // namespace llmrt
