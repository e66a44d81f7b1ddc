#include "core/kv/block_index.h"

#include <algorithm>

namespace llmrt {

BlockIndex::BlockIndex(const KvPoolSize& size)
    : block_tokens_(size.block_tokens), tokens_(size_t{size.num_blocks} * size.block_tokens), nodes_(size.num_blocks) {
  index_.reserve(size.num_blocks);
  for (Node& node : nodes_) node.spare = index_.extract(index_.emplace(Digest(), kNoBlock).first);
}

// A digest that stands for other tokens is no hit.
BlockId BlockIndex::find(const Digest& key, std::span<const int32_t> tokens) const {
  const auto it = index_.find(key);
  if (it == index_.end()) return kNoBlock;
  return std::ranges::equal(tokens, this->tokens(it->second)) ? it->second : kNoBlock;
}

void BlockIndex::insert(const Digest& key, std::span<const int32_t> tokens, BlockId block) {
  LLMRT_CHECK(tokens.size() == block_tokens_ && !contains(block), "a full block that is not there yet");
  Node& node = nodes_[block];
  node.key = node.spare.key() = key;
  node.spare.mapped() = block;
  auto inserted = index_.insert(std::move(node.spare));
  LLMRT_CHECK(inserted.inserted, "a key is there once; or a collision of SHA-256");
  std::ranges::copy(tokens, tokens_.begin() + static_cast<ptrdiff_t>(size_t{block} * block_tokens_));
}

void BlockIndex::erase(BlockId block) {
  Node& node = nodes_[block];
  LLMRT_CHECK(contains(block), "erase of a block that is not there");
  node.spare = index_.extract(node.key);
}

void BlockIndex::hide(BlockId block) {
  Node& node = nodes_[block];
  LLMRT_CHECK(contains(block), "hide of a block that is not there");
  Index::node_type entry = index_.extract(node.key);
  node.key = entry.key() = Sha256().add_text("hidden").add(++num_hidden_).add(node.key).finish();
  index_.insert(std::move(entry));
}

Status BlockIndex::check(const char* name) const {
  for (const auto& [key, block] : index_) {
    if (block < nodes_.size() && contains(block) && nodes_[block].key == key) continue;
    return broken_books("{}: block {} is not under its own key", name, block);
  }
  const auto num_in =
      static_cast<size_t>(std::ranges::count_if(nodes_, [](const Node& node) { return node.spare.empty(); }));
  if (num_in == index_.size()) return {};
  return broken_books("{}: expected {} blocks, found {}", name, num_in, index_.size());
}

}  // namespace llmrt
