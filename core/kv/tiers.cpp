#include "core/kv/tiers.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace llmrt {

// Contents of all groups are known by the tokens of group 0's blocks.
Tiers::Tiers(CacheGroups* groups, const HostTierSize& host, BlockDisk* disk, const PrefixListeners* listeners)
    : groups_(*groups), hosts_(groups->size()), disk_(disk) {
  LLMRT_CHECK(disk_ == nullptr || host.num_blocks > 0, "a disk below a host tier");
  if (host.num_blocks == 0) return;
  stores_max_ = host.stores_max;
  stores_.reserve(stores_max_);
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    const uint32_t num_blocks = g == 0 ? host.num_blocks : groups_.shape(g).num_host_blocks;
    const KvPoolSize size{num_blocks, groups_.shape(0).block_tokens};
    if (num_blocks > 0) hosts_[g] = std::make_unique<HostTier>(size, g == 0 ? listeners : nullptr);
  }
}

BlockId Tiers::find(uint32_t group, const Digest& key, std::span<const int32_t> tokens) const {
  return hosts_[group] && hosts_[group]->num_used() > 0 ? hosts_[group]->find(key, tokens) : kNoBlock;
}

void Tiers::store(uint32_t group, BlockId block, const Content& content) {
  if (!hosts_[group] || stores_.size() == stores_max_) return;
  BlockId target = hosts_[group]->insert(content.key, content.tokens, content.root);
  if (target != kNoBlock) stores_.push_back({block, target, group, groups_.shape(group).block_tokens});
  if (!has_disk() || !content.may_last || disk_->contains(content.key)) return;
  if (target == kNoBlock)
    target = hosts_[group]->find(content.key, content.tokens);  // there since it was given up once
  if (target == kNoBlock) return;
  hosts_[group]->pin(target);
  saving_.push_back(
      {num_steps_, {group, target, content.key, {content.tokens.begin(), content.tokens.end()}, content.root}});
}

void Tiers::erase(uint32_t group, const Digest& key, std::span<const int32_t> tokens) {
  if (hosts_[group]) hosts_[group]->erase(key, tokens);
  if (!has_disk()) return;
  make_void([&](const DiskBlock& block) { return block.key == key; });
  if (disk_->contains(key)) disk_->erase(key);
}

void Tiers::forget(uint64_t root) {
  for (const auto& host : hosts_)
    if (host) host->forget(root);
  if (!has_disk()) return;
  make_void([&](const DiskBlock& block) { return block.root == root; });
  disk_->forget(root);
}

template <typename Which>
void Tiers::make_void(const Which& which) {
  for (Saving& saving : saving_) saving.is_void |= which(saving.block);
  for (Reading& reading : reading_) reading.is_void |= which(reading.block);
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
  ++num_steps_;
}

// ---- the disk ------------------------------------------------------------------------------------------------------

BlockId Tiers::find_on_disk(uint32_t group, const Digest& key, std::span<const int32_t> tokens) const {
  const BlockId block = find(group, key, tokens);
  return block == kNoBlock && has_disk() && hosts_[group] && disk_->contains(key) ? kOnDisk : block;
}

uint32_t Tiers::write_room() const {
  const uint32_t free = hosts_[0]->num_free(), kept = hosts_[0]->num_blocks() / 2;
  return std::min(
      {disk_->write_room(), free > kept ? free - kept : 0, stores_max_ - static_cast<uint32_t>(stores_.size())});
}

void Tiers::step_is_complete() {
  ++num_complete_;
  for (; !saving_.empty() && saving_.front().step < num_complete_; saving_.pop_front()) {
    Saving& saving = saving_.front();
    const auto [group, host_block] = std::pair(saving.block.kv_group, saving.block.host_block);
    if (saving.is_void || !disk_->write(std::move(saving.block))) hosts_[group]->unpin(host_block);
  }
}

void Tiers::poll_disk() {
  if (!has_disk()) return;
  done_.clear();
  disk_->take_done(&done_);
  for (const DiskDone& done : done_) {
    HostTier& host = *hosts_[done.kv_group];
    if (!done.is_read) {
      host.unpin(done.host_block);
      continue;
    }
    LLMRT_CHECK(!reading_.empty() && reading_.front().block.host_block == done.host_block,
                "a disk reads in the order in which it is asked");
    const Reading reading = std::move(reading_.front());
    reading_.pop_front();
    if (done.is_there && !reading.is_void)
      host.fill(done.host_block, reading.block.key, reading.block.tokens, reading.block.root);
    else
      host.unpin(done.host_block);
  }
}

// Half of a pool for all together, more for one that is alone.
std::optional<DiskBatch> Tiers::read(std::vector<DiskBlock> blocks) {
  std::erase_if(blocks, [this](const DiskBlock& block) {  // for another text that begins alike
    return std::ranges::any_of(reading_, [&](const Reading& reading) { return reading.block.key == block.key; });
  });
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    const auto is_of_group = [g](const DiskBlock& block) { return block.kv_group == g; };
    const auto num_asked = static_cast<uint64_t>(std::ranges::count_if(blocks, is_of_group));
    const auto num_reading = static_cast<uint64_t>(
        std::ranges::count_if(reading_, [&](const Reading& reading) { return is_of_group(reading.block); }));
    if (num_asked == 0) continue;
    if (num_asked > hosts_[g]->num_blocks()) return 0;
    if (num_asked > hosts_[g]->num_free()) return std::nullopt;
    if (num_reading > 0 && 2 * (num_asked + num_reading) > hosts_[g]->num_blocks()) return std::nullopt;
  }
  ++num_batches_;
  for (DiskBlock& block : blocks) {
    HostTier& host = *hosts_[block.kv_group];
    block.host_block = host.reserve();
    if (!disk_->read(block)) {
      host.unpin(block.host_block);
      break;
    }
    reading_.push_back({num_batches_, std::move(block)});
  }
  return num_batches_;
}

Status Tiers::check() const {
  for (const auto& host : hosts_)
    if (host)
      if (Status status = host->check(); !status) return status;
  return {};
}

}  // namespace llmrt
