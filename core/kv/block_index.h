// A flat table from a chained 256-bit digest (identity, then block by block the tokens) to the block that holds what it
// stands for. Tokens are compared on every hit, whatever the digest says. All memory is taken at construction.
#pragma once

#include <cstring>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/base/sha256.h"
#include "core/kv/block_pool.h"

namespace llmrt {

// The key of a block behind `before`: its parent's key, or the identity of a sequence's first block.
inline Digest chain_key(const Digest& before, std::span<const int32_t> tokens) {
  return Sha256().add(before).add_all(tokens).finish();
}

class BlockIndex {
 public:
  explicit BlockIndex(const KvPoolSize& size);

  // The block under this key that holds these tokens, or kNoBlock.
  BlockId find(const Digest& key, std::span<const int32_t> tokens) const;
  // Adds a block that is not there, under a key that is not.
  void insert(const Digest& key, std::span<const int32_t> tokens, BlockId block);
  bool contains(BlockId block) const { return nodes_[block].spare.empty(); }
  const Digest& key(BlockId block) const { return nodes_[block].key; }
  std::span<const int32_t> tokens(BlockId block) const {
    return {tokens_.data() + size_t{block} * block_tokens_, block_tokens_};
  }
  // It must be there.
  void erase(BlockId block);
  // It stays, under a key that nobody can ask for.
  void hide(BlockId block);
  uint32_t size() const { return static_cast<uint32_t>(index_.size()); }
  // `name`: of the books, in the error.
  Status check(const char* name) const;

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

  const uint32_t block_tokens_;
  std::vector<int32_t> tokens_;  // of every block
  std::vector<Node> nodes_;
  Index index_;
  uint64_t num_hidden_ = 0;  // so far
};

}  // namespace llmrt
