#include "core/kv/tiers.h"

#include <algorithm>

#include "core/base/check.h"

namespace llmrt {

// Contents of all groups are known by the tokens of group 0's blocks.
Tiers::Tiers(CacheGroups* groups, const HostTierSize& host) : groups_(*groups), hosts_(groups->size()) {
  if (host.num_blocks == 0) return;
  stores_max_ = host.stores_max;
  stores_.reserve(stores_max_);
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    const uint32_t num_blocks = g == 0 ? host.num_blocks : groups_.shape(g).num_host_blocks;
    if (num_blocks > 0) hosts_[g] = std::make_unique<HostTier>(KvPoolSize{num_blocks, groups_.shape(0).block_tokens});
  }
}

BlockId Tiers::find(uint32_t group, const Digest& key, std::span<const int32_t> tokens) const {
  return hosts_[group] && hosts_[group]->num_used() > 0 ? hosts_[group]->find(key, tokens) : kNoBlock;
}

void Tiers::store(uint32_t group, BlockId block, const Content& content) {
  if (!hosts_[group] || stores_.size() == stores_max_) return;
  const BlockId target = hosts_[group]->insert(content.key, content.tokens, content.root);
  if (target != kNoBlock) stores_.push_back({block, target, group, groups_.shape(group).block_tokens});
}

void Tiers::erase(uint32_t group, const Digest& key, std::span<const int32_t> tokens) {
  if (hosts_[group]) hosts_[group]->erase(key, tokens);
}

void Tiers::forget(uint64_t root) {
  for (const auto& host : hosts_)
    if (host) host->forget(root);
}

void Tiers::load(uint32_t group, BlockId host_block, BlockId target) {
  loads_.push_back({host_block, target, group, groups_.shape(group).block_tokens});
}

void Tiers::copy(uint32_t group, BlockId source, BlockId target, uint32_t num_tokens) {
  LLMRT_CHECK(!is_copied_to(group, source), "copies of a step run side by side");
  groups_.pool(group).retain(source);
  copies_.push_back({source, target, group, num_tokens});
}

bool Tiers::is_copied_to(uint32_t group, BlockId block) const {
  return std::ranges::any_of(copies_,
                             [&](const BlockMove& copy) { return copy.kv_group == group && copy.target == block; });
}

void Tiers::end_step() {
  stores_.clear();
  loads_.clear();
  for (const BlockMove& copy : copies_) groups_.pool(copy.kv_group).release(copy.source);
  copies_.clear();
  for (const auto& host : hosts_)
    if (host) host->let_go_all();
}

Status Tiers::check() const {
  for (const auto& host : hosts_)
    if (host)
      if (Status status = host->check(); !status) return status;
  return {};
}

}  // namespace llmrt
