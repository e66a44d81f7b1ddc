// The host's pools below those of the device, one a KV group, and what the step that is being made has to move first:
// stores, then loads, then copies inside the device's pools. The moves of one kind run side by side. Below them there
// may be a disk: it writes what steps have stored, once they are complete, and reads into the host's pools.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/kv/block_disk.h"
#include "core/kv/cache_groups.h"
#include "core/kv/host_tier.h"

namespace llmrt {

// Between the pool of a group and its host pool, or inside the pool.
struct BlockMove {
  BlockId source, target;
  uint32_t kv_group = 0;
  uint32_t num_tokens = 0;  // the first of the block; of a load or a store all
};

// The number of a request to the disk, which may ask for several blocks. Numbers count up from 1.
using DiskBatch = uint64_t;

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
    bool may_last = false;  // it may go to a disk
  };

  // `disk`: null where there is none; it outlives the tiers, and needs a host pool of each group. `listeners`: of group
  // 0's host pool; null: there are none.
  Tiers(CacheGroups* groups, const HostTierSize& host, BlockDisk* disk, const PrefixListeners* listeners = nullptr);

  bool has_host() const { return hosts_[0] != nullptr; }
  // Null: the group has none.
  const HostTier* host(uint32_t group) const { return hosts_[group].get(); }
  BlockId find(uint32_t group, const Digest& key, std::span<const int32_t> tokens) const;
  // The same, or kOnDisk for what has to be read first.
  static constexpr BlockId kOnDisk = kNoBlock - 1;
  BlockId find_on_disk(uint32_t group, const Digest& key, std::span<const int32_t> tokens) const;
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

  // ---- the disk ----
  bool has_disk() const { return disk_ != nullptr; }
  bool is_disk_lasting() const { return disk_->is_lasting(); }
  bool is_on_disk(const Digest& key) const { return disk_->contains(key); }
  // How many blocks may be stored for it in this step: half of the host's pool is left to others.
  uint32_t write_room() const;
  // The steps are complete in the order of end_step: what this one has stored is handed to the disk.
  void step_is_complete();
  // Takes note of what the disk has done.
  void poll_disk();
  // Lets the disk read these into the host's pools. 0: they would never fit. Nothing: not now, as others have taken the
  // room.
  std::optional<DiskBatch> read(std::vector<DiskBlock> blocks);
  bool is_reading(DiskBatch batch) const { return !reading_.empty() && reading_.front().batch <= batch; }
  // A block of a host pool is the last used now.
  void use(uint32_t group, BlockId host_block) { hosts_[group]->use(host_block); }

  // The host pools' books.
  Status check() const;

 private:
  // What a host block holds once a step is complete, and the disk is to have.
  struct Saving {
    uint64_t step;
    DiskBlock block;
    bool is_void = false;  // it cannot be trusted any more
  };
  struct Reading {
    DiskBatch batch;
    DiskBlock block;
    bool is_void = false;
  };
  template <typename Which>
  void make_void(const Which& which);

  CacheGroups& groups_;
  std::vector<std::unique_ptr<HostTier>> hosts_;  // by group
  uint32_t stores_max_ = 0;
  BlockDisk* const disk_;
  std::vector<BlockMove> stores_, loads_, copies_;
  uint64_t num_steps_ = 0, num_complete_ = 0;
  std::deque<Saving> saving_;
  std::deque<Reading> reading_;  // in the order in which the disk does it
  DiskBatch num_batches_ = 0;
  std::vector<DiskDone> done_;
};

}  // namespace llmrt
