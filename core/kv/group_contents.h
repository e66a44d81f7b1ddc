// What the groups beside group 0 hold of the texts in the prefix cache. A node is a block of group 0 that stands in the
// cache, and so the text that ends with it; beside it may stand, of each other group, the blocks that end with the same
// tokens (smaller blocks: several; larger ones: behind every so many nodes), or a checkpoint of the state there.
//
// Such a block may be lost while the node stays, and is held or cached for itself. It goes when the node goes.
#pragma once

#include <vector>

#include "core/base/sha256.h"
#include "core/base/status.h"
#include "core/kv/cache_groups.h"

namespace llmrt {

// The key in the group's host tier of what stands beside a node, by the node's own key.
inline Digest part_key(const Digest& node_key, uint32_t group, uint32_t part) {
  return Sha256().add_text("group").add(group).add(part).add(node_key).finish();
}

class GroupContents {
 public:
  struct Place {
    uint32_t node = kNoBlock;
    uint32_t part = 0;  // of the parts of a node
  };

  // Group 0's block sizes must divide the other's, or the other way round.
  GroupContents(const CacheGroups& groups, uint32_t group);

  uint32_t parts_node() const { return parts_node_; }
  // The entry of a table that stands beside the node whose own entry is node_idx; kNoEntry: none does.
  static constexpr uint32_t kNoEntry = ~0u;
  uint32_t entry_of(uint32_t node_idx, uint32_t part) const;
  // Whether a beginning of that many nodes ends where a block of the group, or a state that is kept, does.
  bool ends_at(uint32_t num_nodes) const { return num_nodes % nodes_part_ == 0; }
  // Which node's entry a table entry (of a group of blocks) stands beside, and as which part.
  uint32_t node_idx_of(uint32_t entry) const {
    return parts_node_ > 1 ? entry / parts_node_ : (entry + 1) * nodes_part_ - 1;
  }
  uint32_t part_of(uint32_t entry) const { return entry % parts_node_; }

  BlockId at(uint32_t node, uint32_t part) const { return blocks_[size_t{node} * parts_node_ + part]; }
  bool contains(BlockId block) const { return places_[block].node != kNoBlock; }
  Place place(BlockId block) const { return places_[block]; }
  // Where nothing stands; of a block that stands nowhere.
  void attach(uint32_t node, uint32_t part, BlockId block);
  // Takes away a block that stands somewhere.
  void detach(BlockId block);

  // Both directions agree, and what is attached is what the pool keeps.
  Status check(const BlockPool& pool) const;

 private:
  uint32_t parts_node_ = 1;      // parts beside one node
  uint32_t nodes_part_ = 1;      // nodes from one part to the next
  std::vector<BlockId> blocks_;  // [node][part]
  std::vector<Place> places_;    // by block
};

}  // namespace llmrt
