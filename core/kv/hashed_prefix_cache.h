// A flat table from a chained 256-bit digest (identity, then block by block the tokens) to the block. Knows whole
// blocks only, and no order among them: a block that went leaves those behind it out of reach until it is there again.
#pragma once

#include <cstring>
#include <unordered_map>

#include "core/kv/prefix_cache.h"

namespace llmrt {

class HashedPrefixCache final : public PrefixCache {
 public:
  explicit HashedPrefixCache(const KvPoolSize& size);

  PrefixMatch match(const Digest& identity, std::span<const int32_t> tokens) const override;
  BlockId insert(const Digest& identity, BlockId parent, std::span<const int32_t> tokens, BlockId block) override;
  bool contains(BlockId block) const override { return nodes_[block].spare.empty(); }
  bool has_children(BlockId) const override { return false; }
  void erase(BlockId block) override;
  uint32_t size() const override { return static_cast<uint32_t>(index_.size()); }
  Status check() const override;

 private:
  struct FirstWord {  // a digest is its own hash
    size_t operator()(const Digest& digest) const {
      size_t word;
      std::memcpy(&word, digest.data(), sizeof word);
      return word;
    }
  };
  using Index = std::unordered_map<Digest, BlockId, FirstWord>;
  struct Node {
    Digest key = {};
    Index::node_type spare;  // empty while the block is in the index
  };
  std::span<int32_t> tokens_of(BlockId block) {
    return {tokens_.data() + size_t{block} * block_tokens_, block_tokens_};
  }
  // The block under this key that holds these tokens, or kNoBlock.
  BlockId find(const Digest& key, std::span<const int32_t> tokens) const;

  const uint32_t block_tokens_;
  std::vector<int32_t> tokens_;  // of every block
  std::vector<Node> nodes_;
  Index index_;
};

}  // namespace llmrt
