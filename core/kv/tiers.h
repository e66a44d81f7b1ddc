// The host's pools below those of the device, one a KV group, and what the step that is being made has to move first:
// stores, then loads, then copies inside the device's pools. The moves of one kind run side by side.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/kv/cache_groups.h"
#include "core/kv/host_tier.h"

namespace llmrt {

// Between the pool of a group and its host pool, or inside the pool.
struct BlockMove {
  BlockId source, target;
  uint32_t kv_group = 0;
  uint32_t num_tokens = 0;  // the first of the block; of a load or a store all
};

struct HostTierSize {
  uint32_t num_blocks = 0;  // of group 0 (others: KvPoolSize); 0 = no such tier
  uint32_t stores_max = 0;  // of one step: what comes on top is lost instead
};

class Tiers {
 public:
  // Where a content stands: what holds these tokens behind those of the key's parent.
  struct Content {
    const Digest& key;
    std::span<const int32_t> tokens;
    uint64_t root;
  };

  Tiers(CacheGroups* groups, const HostTierSize& host);

  bool has_host() const { return hosts_[0] != nullptr; }
  // Null: the group has none.
  const HostTier* host(uint32_t group) const { return hosts_[group].get(); }
  BlockId find(uint32_t group, const Digest& key, std::span<const int32_t> tokens) const;
  // The block is about to lose this content: it is stored, if there is room in the step and in the host's pool.
  void store(uint32_t group, BlockId block, const Content& content);
  // The content cannot be trusted any more.
  void erase(uint32_t group, const Digest& key, std::span<const int32_t> tokens);
  void forget(uint64_t root);

  // Host blocks stay what they are until the step is complete; the one held last is the last used then.
  void hold(uint32_t group, BlockId host_block) { hosts_[group]->hold(host_block); }
  // A held host block is read into a block of the pool.
  void load(uint32_t group, BlockId host_block, BlockId target);
  // The first tokens of a block to another, whose owner counts it. The source stays what it is until the step is
  // complete: it counts as held. It is none that this step copies to (is_copied_to).
  void copy(uint32_t group, BlockId source, BlockId target, uint32_t num_tokens);
  bool is_copied_to(uint32_t group, BlockId block) const;

  std::span<const BlockMove> stores() const { return stores_; }
  std::span<const BlockMove> loads() const { return loads_; }
  std::span<const BlockMove> copies() const { return copies_; }
  // They are in a plan.
  void end_step();

  // The host pools' books.
  Status check() const;

 private:
  CacheGroups& groups_;
  std::vector<std::unique_ptr<HostTier>> hosts_;  // by group
  uint32_t stores_max_ = 0;
  std::vector<BlockMove> stores_, loads_, copies_;
};

}  // namespace llmrt
