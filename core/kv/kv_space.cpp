#include "core/kv/kv_space.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace llmrt {
namespace {

// Two that are equal by chance are forgotten together.
uint64_t root_of(const Digest& identity, std::span<const int32_t> tokens) {
  const Digest key = chain_key(identity, tokens);
  uint64_t word;
  std::memcpy(&word, key.data(), sizeof word);
  return word | 1;
}

}  // namespace

KvSpace::KvSpace(std::span<const KvPoolSize> sizes, PrefixCacheKind cache, const HostTierSize& host) {
  for (const KvPoolSize& size : sizes) groups_.push_back({BlockPool(size.num_blocks), size.block_tokens});
  LLMRT_CHECK(cache != PrefixCacheKind::kOff || host.num_blocks == 0, "a host tier below a prefix cache");
  if (cache == PrefixCacheKind::kOff) return;
  LLMRT_CHECK(sizes.size() == 1, "a prefix cache over one KV group");
  cache_ = make_prefix_cache(cache, sizes[0]);
  roots_.resize(sizes[0].num_blocks);
  is_forgotten_.resize(sizes[0].num_blocks);
  if (host.num_blocks == 0) return;
  host_ = std::make_unique<HostTier>(KvPoolSize{host.num_blocks, sizes[0].block_tokens});
  stores_max_ = host.stores_max;
  keys_.resize(sizes[0].num_blocks);
  worth_storing_.resize(sizes[0].num_blocks);
  stores_.reserve(stores_max_);
}

bool KvSpace::can_hold(uint32_t num_tokens) const {
  for (uint32_t g = 0; g < num_groups(); ++g) {
    if (blocks_for(g, num_tokens) > num_blocks(g)) return false;
  }
  return true;
}

std::vector<BlockTable> KvSpace::make_tables(uint32_t num_tokens) const {
  std::vector<BlockTable> tables(num_groups());
  for (uint32_t g = 0; g < num_groups(); ++g) {
    tables[g].blocks.reserve(std::min(blocks_for(g, num_tokens), num_blocks(g)));
  }
  return tables;
}

uint32_t KvSpace::capacity_tokens(std::span<const BlockTable> tables) const {
  uint64_t least = std::numeric_limits<uint32_t>::max();
  for (uint32_t g = 0; g < num_groups(); ++g) {
    const uint64_t blocks = tables[g].blocks.size() + num_free(g);
    least = std::min(least, blocks * groups_[g].block_tokens);
  }
  return static_cast<uint32_t>(least);
}

bool KvSpace::grow(std::span<BlockTable> tables, uint32_t num_tokens) {
  if (capacity_tokens(tables) < num_tokens) return false;
  for (uint32_t g = 0; g < num_groups(); ++g) {
    const uint32_t wanted = blocks_for(g, num_tokens);
    while (tables[g].blocks.size() < wanted) tables[g].blocks.push_back(allocate(groups_[g]));
  }
  return true;
}

BlockId KvSpace::allocate(Group& group) {
  const BlockId block = group.pool.allocate();
  if (!cache_ || !cache_->contains(block)) return block;
  if (host_) store(block);
  cache_->erase(block);
  return block;
}

void KvSpace::release(std::span<BlockTable> tables, bool forget) {
  for (uint32_t g = 0; g < num_groups(); ++g) {
    std::vector<BlockId>& blocks = tables[g].blocks;
    for (; !blocks.empty(); blocks.pop_back()) release(groups_[g], blocks.back(), forget);
    tables[g].num_sent = tables[g].num_cached = 0;
  }
}

void KvSpace::release(Group& group, BlockId block, bool forget) {
  if (group.pool.references(block) == 1 && group.pool.keeps_content(block) && (forget || is_forgotten_[block]) &&
      !cache_->has_children(block)) {
    if (host_ && !is_forgotten_[block]) host_->erase(keys_[block], cache_->tokens(block));
    drop(block);
  }
  group.pool.release(block);
}

// Out of the cache.
void KvSpace::drop(BlockId block) {
  cache_->erase(block);
  groups_[0].pool.set_keeps_content(block, false);
  is_forgotten_[block] = false;
}

// ---- shared beginnings ---------------------------------------------------------------------------------------------

PrefixMatch KvSpace::match(const Digest& identity, std::span<const int32_t> tokens) const {
  if (!cache_) return {};
  PrefixMatch match = cache_->match(identity, tokens);
  if (!host_ || host_->num_used() == 0) return match;
  Digest key = match.blocks.empty() ? identity : keys_[match.blocks.back()];
  tokens = tokens.subspan(match.blocks.size() * block_tokens());
  for (; tokens.size() >= block_tokens(); tokens = tokens.subspan(block_tokens())) {
    const auto chunk = tokens.first(block_tokens());
    key = chain_key(key, chunk);
    const BlockId block = host_->find(key, chunk);
    if (block == kNoBlock) break;
    match.host_blocks.push_back(block);
  }
  if (match.host_blocks.empty()) return match;
  match.drop_partial();
  return match;
}

uint32_t KvSpace::num_live(const PrefixMatch& match) const {
  return static_cast<uint32_t>(std::ranges::count_if(match.blocks, [this](BlockId block) { return is_live(block); }));
}

PrefixMatch KvSpace::match(std::span<const BlockTable> tables, uint32_t num_tokens) const {
  PrefixMatch match;
  if (num_groups() != 1) return match;
  const BlockTable& table = tables[0];
  if (!is_trusted(tables)) return match;  // a branch begins anew
  uint32_t num_full = num_tokens / block_tokens();
  if (cache_) num_full = std::min(num_full, table.num_cached);  // a block that is full since a moment ago is copied
  match.blocks.assign(table.blocks.begin(), table.blocks.begin() + num_full);
  match.partial_tokens = std::min(num_tokens - num_full * block_tokens(), block_tokens());
  if (match.partial_tokens > 0) match.partial_block = table.blocks[num_full];
  return match;
}

void KvSpace::share(std::span<BlockTable> tables, const PrefixMatch& match) {
  if (match.blocks.empty()) return;
  BlockTable& table = tables[0];
  LLMRT_CHECK(table.blocks.empty(), "a table begins with what it shares");
  for (const BlockId block : match.blocks) groups_[0].pool.retain(block);
  table.blocks.assign(match.blocks.begin(), match.blocks.end());
  if (cache_) table.num_cached = static_cast<uint32_t>(match.blocks.size());
}

void KvSpace::keep(std::span<BlockTable> tables, const Digest& identity, std::span<const int32_t> tokens) {
  if (!cache_) return;
  BlockPool& pool = groups_[0].pool;
  BlockTable& table = tables[0];
  const uint32_t num_full = static_cast<uint32_t>(tokens.size() / block_tokens());
  for (uint32_t& i = table.num_cached; i < num_full; ++i) {
    const BlockId own = table.blocks[i];
    const BlockId parent = i == 0 ? kNoBlock : table.blocks[i - 1];
    const BlockId kept =
        cache_->insert(identity, parent, tokens.subspan(size_t{i} * block_tokens(), block_tokens()), own);
    if (kept == own) {
      pool.set_keeps_content(own, true);
      roots_[own] = parent == kNoBlock ? root_of(identity, cache_->tokens(own)) : roots_[parent];
      is_forgotten_[own] = parent != kNoBlock && is_forgotten_[parent];
      if (host_) keys_[own] = chain_key(parent == kNoBlock ? identity : keys_[parent], cache_->tokens(own));
      continue;
    }
    pool.retain(kept);
    pool.release(own);
    table.blocks[i] = kept;
    table.num_sent = std::min(table.num_sent, i);
  }
}

uint64_t KvSpace::root(std::span<const BlockTable> tables) const {
  return tables.empty() || tables[0].num_cached == 0 ? 0 : roots_[tables[0].blocks[0]];
}

// Blocks that nobody holds stand in their pool's order children first.
void KvSpace::forget(uint64_t root) {
  if (!cache_ || root == 0) return;
  const BlockPool& pool = groups_[0].pool;
  for (BlockId block = pool.first_cached(), next; block != kNoBlock; block = next) {
    next = pool.next_cached(block);
    if (roots_[block] == root) drop(block);
  }
  for (BlockId block = 0; block < pool.num_blocks(); ++block) {
    if (!pool.keeps_content(block) || roots_[block] != root || is_forgotten_[block]) continue;
    cache_->hide(block);
    is_forgotten_[block] = true;
  }
  if (host_) host_->forget(root);
}

// ---- the host tier -------------------------------------------------------------------------------------------------

void KvSpace::store(BlockId block) {
  if (!worth_storing_[block] || stores_.size() == stores_max_) return;
  const BlockId target = host_->insert(keys_[block], cache_->tokens(block), roots_[block]);
  if (target != kNoBlock) stores_.push_back({block, target});
}

void KvSpace::set_worth_storing(std::span<const BlockTable> tables, bool worth) {
  if (!host_) return;
  for (const BlockId block : tables[0].blocks) worth_storing_[block] = worth;
}

void KvSpace::load(std::span<BlockTable> tables, const PrefixMatch& match) {
  // From the end: the beginning of a text is what is used last, and lost last.
  for (size_t i = match.host_blocks.size(); i-- > 0;) host_->hold(match.host_blocks[i]);
  for (const BlockId source : match.host_blocks) {
    const BlockId target = allocate(groups_[0]);
    tables[0].blocks.push_back(target);
    loads_.push_back({source, target});
  }
}

void KvSpace::forget_moves() {
  stores_.clear();
  loads_.clear();
  if (host_) host_->let_go_all();
}

// ---- books ---------------------------------------------------------------------------------------------------------

Status KvSpace::check_books(std::span<const Holder> sequences) const {
  for (uint32_t g = 0; g < num_groups(); ++g) {
    std::vector<uint32_t> references(num_blocks(g));
    for (const Holder& holder : sequences) {
      for (const BlockId block : holder.tables[g].blocks) ++references[block];
    }
    if (Status status = groups_[g].pool.check_books(references); !status) return status;
    for (const Holder& holder : sequences) {
      const BlockTable& table = holder.tables[g];
      for (size_t i = cache_ ? table.num_cached : holder.num_tokens / groups_[g].block_tokens; i < table.blocks.size();
           ++i) {
        const BlockId block = table.blocks[i];
        if (references[block] == 1) continue;
        return broken_books("block {}: it is in {} tables and {}", block, references[block],
                            cache_ ? "not in the prefix cache" : "not full");
      }
    }
  }
  if (host_)
    if (Status status = host_->check(); !status) return status;
  return cache_ ? check_cache(sequences) : Status();
}

Status KvSpace::check_cache(std::span<const Holder> sequences) const {
  const BlockPool& pool = groups_[0].pool;
  uint32_t num_kept = 0;
  for (BlockId block = 0; block < pool.num_blocks(); ++block) {
    num_kept += pool.keeps_content(block);
    if (is_forgotten_[block] && (!cache_->contains(block) || pool.references(block) == 0))
      return broken_books("block {}: forgotten, expected in the cache and held, found {} references", block,
                          pool.references(block));
    if (pool.keeps_content(block) == cache_->contains(block)) continue;
    return broken_books("block {}: the prefix cache {} it, the pool does not agree", block,
                        cache_->contains(block) ? "has" : "lacks");
  }
  if (num_kept != cache_->size())
    return broken_books("prefix cache: expected {} blocks, found {}", num_kept, cache_->size());
  for (const Holder& holder : sequences) {
    const BlockTable& table = holder.tables[0];
    for (size_t i = 0; i < table.blocks.size(); ++i) {
      if (cache_->contains(table.blocks[i]) == (i < table.num_cached)) continue;
      return broken_books("block {}: entry {} of a table whose first {} are cached", table.blocks[i], i,
                          table.num_cached);
    }
    for (uint32_t i = 1; i < table.num_cached; ++i) {
      if (is_forgotten_[table.blocks[i]] == is_forgotten_[table.blocks[0]]) continue;
      return broken_books("block {}: entry {} of a table, expected forgotten as its first one", table.blocks[i], i);
    }
  }
  return cache_->check();
}

}  // namespace llmrt
