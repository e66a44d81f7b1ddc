#include "core/kv/radix_prefix_cache.h"

#include <algorithm>

namespace llmrt {

RadixPrefixCache::RadixPrefixCache(const KvPoolSize& size)
    : block_tokens_(size.block_tokens),
      tokens_(size_t{size.num_blocks} * size.block_tokens),
      nodes_(size.num_blocks),
      index_(Before{this}) {
  for (BlockId block = 0; block < size.num_blocks; ++block)
    nodes_[block].spare = index_.extract(index_.insert(block).first);
}

bool RadixPrefixCache::Before::operator()(const Key& a, const Key& b) const {
  if (a.parent != b.parent) return a.parent < b.parent;
  if (a.parent == kNoBlock && a.identity != b.identity) return a.identity < b.identity;
  return std::lexicographical_compare(a.tokens.begin(), a.tokens.end(), b.tokens.begin(), b.tokens.end());
}

PrefixMatch RadixPrefixCache::match(const Digest& identity, std::span<const int32_t> tokens) const {
  PrefixMatch match;
  BlockId parent = kNoBlock;
  while (!tokens.empty()) {
    const Key key{parent, identity, tokens.first(std::min<size_t>(tokens.size(), block_tokens_))};
    const auto after = index_.lower_bound(key);
    // Of all children the neighbours in order have the most tokens in common.
    for (const auto child : {after, after == index_.begin() ? after : std::prev(after)}) {
      const uint32_t common = common_tokens(child, key);
      if (common <= match.partial_tokens) continue;
      match.partial_block = *child;
      match.partial_tokens = common;
    }
    if (match.partial_tokens < block_tokens_) break;
    parent = match.partial_block;
    match.blocks.push_back(parent);
    match.partial_block = kNoBlock;
    match.partial_tokens = 0;
    tokens = tokens.subspan(block_tokens_);
  }
  return match;
}

// 0 when it is no child of the key's parent.
uint32_t RadixPrefixCache::common_tokens(Index::const_iterator child, const Key& key) const {
  if (child == index_.end()) return 0;
  const Key found = key_of(*child);
  if (found.parent != key.parent || (key.parent == kNoBlock && found.identity != key.identity)) return 0;
  const auto end = std::mismatch(key.tokens.begin(), key.tokens.end(), found.tokens.begin());
  return static_cast<uint32_t>(end.first - key.tokens.begin());
}

BlockId RadixPrefixCache::insert(const Digest& identity, BlockId parent, std::span<const int32_t> tokens,
                                 BlockId block) {
  LLMRT_CHECK(tokens.size() == block_tokens_ && !contains(block), "a full block that is not there yet");
  LLMRT_CHECK(parent == kNoBlock || contains(parent), "behind a block of the tree");
  Node& node = nodes_[block];
  node.parent = parent;
  node.identity = identity;
  std::ranges::copy(tokens, tokens_of(block).begin());
  auto inserted = index_.insert(std::move(node.spare));
  if (!inserted.inserted) {
    node.spare = std::move(inserted.node);
    return *inserted.position;
  }
  if (parent != kNoBlock) ++nodes_[parent].num_children;
  return block;
}

void RadixPrefixCache::erase(BlockId block) {
  Node& node = nodes_[block];
  LLMRT_CHECK(contains(block) && node.num_children == 0, "only leaves go");
  node.spare = index_.extract(block);
  if (node.parent != kNoBlock) --nodes_[node.parent].num_children;
}

// Others are reached by way of a first block alone, which gets an identity that nobody has.
void RadixPrefixCache::hide(BlockId block) {
  Node& node = nodes_[block];
  LLMRT_CHECK(contains(block), "hide of a block that is not there");
  if (node.parent != kNoBlock) return;
  node.spare = index_.extract(block);
  node.identity = Sha256().add_text("hidden").add(++num_hidden_).add(node.identity).finish();
  index_.insert(std::move(node.spare));
}

Status RadixPrefixCache::check() const {
  std::vector<uint32_t> num_children(nodes_.size());
  for (const BlockId block : index_) {
    if (!contains(block)) return broken_books("prefix tree: block {} is there twice", block);
    const BlockId parent = nodes_[block].parent;
    if (parent == kNoBlock) continue;
    if (!contains(parent)) return broken_books("prefix tree: block {}: its parent {} is gone", block, parent);
    ++num_children[parent];
  }
  for (BlockId block = 0; block < nodes_.size(); ++block) {
    if (nodes_[block].num_children == num_children[block]) continue;
    return broken_books("prefix tree: block {}: expected {} children, found {}", block, num_children[block],
                        nodes_[block].num_children);
  }
  return {};
}

}  // namespace llmrt
