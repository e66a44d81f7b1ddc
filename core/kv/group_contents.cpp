#include "core/kv/group_contents.h"

#include "core/base/check.h"

namespace llmrt {

GroupContents::GroupContents(const CacheGroups& groups, uint32_t group) {
  const uint32_t leading = groups.shape(0).block_tokens, own = groups.shape(group).block_tokens;
  LLMRT_CHECK(own % leading == 0 || (leading % own == 0 && !groups.is_state(group)),
              "blocks of the groups end at common places");
  if (own < leading) parts_node_ = leading / own;
  if (own > leading) nodes_part_ = own / leading;
  blocks_.assign(size_t{groups.shape(0).num_blocks} * parts_node_, kNoBlock);
  places_.resize(groups.shape(group).num_blocks);
}

uint32_t GroupContents::entry_of(uint32_t node_idx, uint32_t part) const {
  if (parts_node_ > 1) return node_idx * parts_node_ + part;
  return ends_at(node_idx + 1) ? (node_idx + 1) / nodes_part_ - 1 : kNoEntry;
}

void GroupContents::attach(uint32_t node, uint32_t part, BlockId block) {
  LLMRT_CHECK(at(node, part) == kNoBlock && !contains(block), "one block of a group at a place");
  blocks_[size_t{node} * parts_node_ + part] = block;
  places_[block] = {node, part};
}

void GroupContents::detach(BlockId block) {
  LLMRT_CHECK(contains(block), "detach of a block that stands nowhere");
  blocks_[size_t{places_[block].node} * parts_node_ + places_[block].part] = kNoBlock;
  places_[block] = {};
}

Status GroupContents::check(const BlockPool& pool) const {
  size_t num_attached = 0;
  for (BlockId block = 0; block < places_.size(); ++block) {
    if (contains(block) != pool.keeps_content(block))
      return broken_books("block {}: it stands {} a node, the pool does not agree", block,
                          contains(block) ? "beside" : "beside no");
    if (!contains(block)) continue;
    ++num_attached;
    if (at(places_[block].node, places_[block].part) != block)
      return broken_books("block {}: node {} does not know of it", block, places_[block].node);
  }
  for (const BlockId block : blocks_) num_attached -= block != kNoBlock;
  if (num_attached == 0) return {};
  return broken_books("expected as many blocks beside nodes as nodes know of, found {} more", num_attached);
}

}  // namespace llmrt
