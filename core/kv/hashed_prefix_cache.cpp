#include "core/kv/hashed_prefix_cache.h"

#include <algorithm>

namespace llmrt {
namespace {

Digest chain(const Digest& before, std::span<const int32_t> tokens) {
  return Sha256().add(before).add_all(tokens).finish();
}

}  // namespace

HashedPrefixCache::HashedPrefixCache(const KvPoolSize& size)
    : block_tokens_(size.block_tokens), tokens_(size_t{size.num_blocks} * size.block_tokens), nodes_(size.num_blocks) {
  index_.reserve(size.num_blocks);
  for (Node& node : nodes_) node.spare = index_.extract(index_.emplace(Digest(), kNoBlock).first);
}

PrefixMatch HashedPrefixCache::match(const Digest& identity, std::span<const int32_t> tokens) const {
  PrefixMatch match;
  Digest key = identity;
  for (; tokens.size() >= block_tokens_; tokens = tokens.subspan(block_tokens_)) {
    const auto chunk = tokens.first(block_tokens_);
    key = chain(key, chunk);
    const BlockId block = find(key, chunk);
    if (block == kNoBlock) break;
    match.blocks.push_back(block);
  }
  return match;
}

// A digest that stands for other tokens is no hit.
BlockId HashedPrefixCache::find(const Digest& key, std::span<const int32_t> tokens) const {
  const auto it = index_.find(key);
  if (it == index_.end()) return kNoBlock;
  const int32_t* stored = tokens_.data() + size_t{it->second} * block_tokens_;
  return std::equal(tokens.begin(), tokens.end(), stored) ? it->second : kNoBlock;
}

BlockId HashedPrefixCache::insert(const Digest& identity, BlockId parent, std::span<const int32_t> tokens,
                                  BlockId block) {
  LLMRT_CHECK(tokens.size() == block_tokens_ && !contains(block), "a full block that is not there yet");
  LLMRT_CHECK(parent == kNoBlock || contains(parent), "behind a block of the table");
  const Digest key = chain(parent == kNoBlock ? identity : nodes_[parent].key, tokens);
  if (const BlockId found = find(key, tokens); found != kNoBlock) return found;
  Node& node = nodes_[block];
  node.key = node.spare.key() = key;
  node.spare.mapped() = block;
  auto inserted = index_.insert(std::move(node.spare));
  LLMRT_CHECK(inserted.inserted, "a collision of SHA-256");
  std::ranges::copy(tokens, tokens_of(block).begin());
  return block;
}

void HashedPrefixCache::erase(BlockId block) {
  Node& node = nodes_[block];
  LLMRT_CHECK(contains(block), "erase of a block that is not there");
  node.spare = index_.extract(node.key);
}

Status HashedPrefixCache::check() const {
  for (const auto& [key, block] : index_) {
    if (block < nodes_.size() && contains(block) && nodes_[block].key == key) continue;
    return broken_books("prefix table: block {} is not under its own key", block);
  }
  const auto num_in =
      static_cast<size_t>(std::ranges::count_if(nodes_, [](const Node& node) { return node.spare.empty(); }));
  if (num_in == index_.size()) return {};
  return broken_books("prefix table: expected {} blocks, found {}", num_in, index_.size());
}

}  // namespace llmrt
