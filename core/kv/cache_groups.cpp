#include "core/kv/cache_groups.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/base/check.h"

namespace llmrt {

CacheGroups::CacheGroups(std::span<const KvPoolSize> sizes) {
  LLMRT_CHECK(!sizes.empty(), "a cache has at least one group");
  for (const KvPoolSize& size : sizes) {
    groups_.push_back({size, BlockPool(size.num_blocks)});
    if (size.kind == CacheKind::kState) place_tokens_ = std::lcm(std::max(1u, place_tokens_), size.block_tokens);
  }
}

uint32_t CacheGroups::entries_for(uint32_t group, uint32_t num_tokens) const {
  if (is_state(group)) return num_tokens > 0 ? 1 : 0;
  return ceil_div(num_tokens, shape(group).block_tokens);
}

uint32_t CacheGroups::first_entry(uint32_t group, uint32_t num_tokens) const {
  const uint32_t window = shape(group).window;
  if (is_state(group) || window == 0 || num_tokens < window) return 0;
  return (num_tokens + 1 - window) / shape(group).block_tokens;
}

uint32_t CacheGroups::blocks_for(uint32_t group, uint32_t num_tokens) const {
  const uint32_t entries = entries_for(group, num_tokens), window = shape(group).window;
  if (is_state(group) || window == 0) return entries;
  return std::min(entries, ceil_div(window - 1, shape(group).block_tokens) + 1);
}

bool CacheGroups::can_hold(uint32_t num_tokens) const {
  for (uint32_t g = 0; g < size(); ++g)
    if (blocks_for(g, num_tokens) > pool(g).num_blocks()) return false;
  return true;
}

double CacheGroups::move_blocks(uint32_t group) const {
  const uint64_t bytes = shape(group).block_bytes, leading = shape(0).block_bytes;
  return bytes == 0 || leading == 0 ? 1 : static_cast<double>(bytes) / static_cast<double>(leading);
}

std::vector<BlockTable> CacheGroups::make_tables(uint32_t num_tokens) const {
  std::vector<BlockTable> tables(size());
  for (uint32_t g = 0; g < size(); ++g) {
    const uint32_t entries = entries_for(g, num_tokens);
    tables[g].blocks.reserve(shape(g).window > 0 ? entries : std::min(entries, pool(g).num_blocks()));
  }
  return tables;
}

uint32_t CacheGroups::capacity_tokens(std::span<const BlockTable> tables) const {
  uint64_t least = std::numeric_limits<uint32_t>::max();
  for (uint32_t g = 0; g < size(); ++g) {
    const uint64_t entries = tables[g].blocks.size() + pool(g).num_free();
    if (!is_state(g)) least = std::min(least, entries * shape(g).block_tokens);
    if (is_state(g) && entries == 0) least = 0;
  }
  return static_cast<uint32_t>(least);
}

bool CacheGroups::grow(std::span<BlockTable> tables, uint32_t num_tokens) {
  if (capacity_tokens(tables) < num_tokens) return false;
  for (uint32_t g = 0; g < size(); ++g) {
    const uint32_t wanted = entries_for(g, num_tokens);
    while (tables[g].blocks.size() < wanted) tables[g].blocks.push_back(allocate(g));
  }
  return true;
}

void CacheGroups::advance(std::span<BlockTable> tables, uint32_t num_tokens) {
  for (uint32_t g = 0; g < size(); ++g) {
    BlockTable& table = tables[g];
    table.num_tokens = num_tokens;
    const uint32_t first = std::min<uint32_t>(first_entry(g, num_tokens), static_cast<uint32_t>(table.blocks.size()));
    for (; table.first < first; ++table.first) {
      behind_.push_back({g, table.blocks[table.first]});
      table.blocks[table.first] = kNoBlock;
    }
    table.num_sent = std::max(table.num_sent, table.first);
  }
}

void CacheGroups::end_step() {
  for (const Behind& behind : behind_) pool(behind.group).release(behind.block);
  behind_.clear();
}

BlockId CacheGroups::allocate(uint32_t group) {
  BlockPool& from = pool(group);
  if (const BlockId next = from.next(); next != kNoBlock && from.keeps_content(next)) keeper_->lose(group, next);
  return from.allocate();
}

void CacheGroups::release(uint32_t group, BlockTable& table) {
  for (; table.blocks.size() > table.first; table.blocks.pop_back()) pool(group).release(table.blocks.back());
  for (const BlockId record : {table.source, table.waiting.record})
    if (record != kNoBlock) pool(group).release(record);
  table.blocks.clear();
  table.first = table.num_sent = table.num_cached = table.num_tokens = 0;
  table.source = kNoBlock;
  table.waiting = table.newest = {};
  table.num_turns = 0;
}

}  // namespace llmrt
