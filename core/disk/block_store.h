// Where blocks of KV pools are kept below the host tier, found by key: files of a disk, or memory that engines share.
// What cannot be had is told as missing: there are no errors.
//
// contains() and stats() may be called from any thread, everything else from one.
#pragma once

#include <cstddef>
#include <span>

#include "core/kv/block_disk.h"
#include "core/metrics/disk_stats.h"

namespace llmrt {

class BlockStore {
 public:
  // Where the parts of a block lie in the host's memory, in their order.
  using Parts = std::span<const std::span<std::byte>>;

  virtual ~BlockStore() = default;
  // Work that a start has left, a piece of it. False: there is none.
  virtual bool scan_next() { return false; }
  virtual bool contains(const Digest& key) const = 0;
  // Does nothing where the key is there already.
  virtual void put(const DiskBlock& block, Parts parts) = 0;
  // Whether `parts` hold the content now. After false they may hold anything.
  virtual bool get(const DiskBlock& block, Parts parts) = 0;
  virtual void erase(const Digest& key) = 0;
  virtual void forget(uint64_t root) = 0;
  virtual DiskStats stats() const = 0;
};

}  // namespace llmrt
