// A tree whose nodes are blocks, kept as one ordered set of (parent, identity of a first block, tokens): the child that
// holds given tokens is found by order, and so is the one with the longest common beginning, its neighbour. Nodes are
// made once and moved in and out of the set, so nothing is allocated afterwards.
#pragma once

#include <set>

#include "core/kv/prefix_cache.h"

namespace llmrt {

class RadixPrefixCache final : public PrefixCache {
 public:
  explicit RadixPrefixCache(const KvPoolSize& size);
  RadixPrefixCache(const RadixPrefixCache&) = delete;  // its set's order refers to it

  PrefixMatch match(const Digest& identity, std::span<const int32_t> tokens) const override;
  BlockId insert(const Digest& identity, BlockId parent, std::span<const int32_t> tokens, BlockId block) override;
  bool contains(BlockId block) const override { return nodes_[block].spare.empty(); }
  bool has_children(BlockId block) const override { return nodes_[block].num_children > 0; }
  bool knows_children() const override { return true; }
  void erase(BlockId block) override;
  void hide(BlockId block) override;
  uint32_t size() const override { return static_cast<uint32_t>(index_.size()); }
  std::span<const int32_t> tokens(BlockId block) const override { return key_of(block).tokens; }
  Status check() const override;

 private:
  struct Key {
    BlockId parent;
    const Digest& identity;  // only of first blocks
    std::span<const int32_t> tokens;
  };
  struct Before {
    using is_transparent = void;
    const RadixPrefixCache* cache;
    bool operator()(const Key& a, const Key& b) const;
    bool operator()(BlockId a, const Key& b) const { return (*this)(cache->key_of(a), b); }
    bool operator()(const Key& a, BlockId b) const { return (*this)(a, cache->key_of(b)); }
    bool operator()(BlockId a, BlockId b) const { return (*this)(cache->key_of(a), cache->key_of(b)); }
  };
  using Index = std::set<BlockId, Before>;
  struct Node {
    BlockId parent = kNoBlock;
    uint32_t num_children = 0;
    Digest identity = {};
    Index::node_type spare;  // empty while the block is in the index
  };

  std::span<int32_t> tokens_of(BlockId block) {
    return {tokens_.data() + size_t{block} * block_tokens_, block_tokens_};
  }
  Key key_of(BlockId block) const {
    const Node& node = nodes_[block];
    return {node.parent, node.identity, {tokens_.data() + size_t{block} * block_tokens_, block_tokens_}};
  }
  uint32_t common_tokens(Index::const_iterator child, const Key& key) const;

  const uint32_t block_tokens_;
  std::vector<int32_t> tokens_;  // of every block
  std::vector<Node> nodes_;
  Index index_;
  uint64_t num_hidden_ = 0;  // first blocks, so far
};

}  // namespace llmrt
