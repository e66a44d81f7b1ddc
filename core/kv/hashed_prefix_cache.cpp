#include "core/kv/hashed_prefix_cache.h"

namespace llmrt {

PrefixMatch HashedPrefixCache::match(const Digest& identity, std::span<const int32_t> tokens) const {
  PrefixMatch match;
  Digest key = identity;
  for (; tokens.size() >= block_tokens_; tokens = tokens.subspan(block_tokens_)) {
    const auto chunk = tokens.first(block_tokens_);
    key = chain_key(key, chunk);
    const BlockId block = index_.find(key, chunk);
    if (block == kNoBlock) break;
    match.blocks.push_back(block);
  }
  return match;
}

BlockId HashedPrefixCache::insert(const Digest& identity, BlockId parent, std::span<const int32_t> tokens,
                                  BlockId block) {
  LLMRT_CHECK(parent == kNoBlock || contains(parent), "behind a block of the table");
  const Digest key = chain_key(parent == kNoBlock ? identity : index_.key(parent), tokens);
  if (const BlockId found = index_.find(key, tokens); found != kNoBlock) return found;
  index_.insert(key, tokens, block);
  return block;
}

}  // namespace llmrt
