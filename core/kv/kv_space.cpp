#include "core/kv/kv_space.h"

#include <algorithm>
#include <limits>

namespace llmrt {

KvSpace::KvSpace(std::span<const KvPoolSize> sizes) {
  for (const KvPoolSize& size : sizes) groups_.push_back({BlockPool(size.num_blocks), size.block_tokens});
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
    while (tables[g].blocks.size() < wanted) tables[g].blocks.push_back(groups_[g].pool.allocate());
  }
  return true;
}

void KvSpace::release(std::span<BlockTable> tables) {
  for (uint32_t g = 0; g < num_groups(); ++g) {
    std::vector<BlockId>& blocks = tables[g].blocks;
    for (; !blocks.empty(); blocks.pop_back()) groups_[g].pool.release(blocks.back());
    tables[g].num_sent = 0;
  }
}

Status KvSpace::check_books(std::span<const std::span<const BlockTable>> sequences) const {
  for (uint32_t g = 0; g < num_groups(); ++g) {
    std::vector<uint32_t> references(num_blocks(g));
    for (const std::span<const BlockTable> tables : sequences) {
      for (const BlockId block : tables[g].blocks) ++references[block];
    }
    if (Status status = groups_[g].pool.check_books(references); !status) return status;
  }
  return {};
}

}  // namespace llmrt
