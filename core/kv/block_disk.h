// What the books ask of a disk below the host tier (core/disk): copies of host blocks, by the same keys. Every call
// returns at once; the work is done elsewhere, in the order of the calls, and told by take_done.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/sha256.h"
#include "core/kv/block_pool.h"

namespace llmrt {

// A block of a group's host pool, and what it holds or is to hold.
struct DiskBlock {
  uint32_t kv_group = 0;
  BlockId host_block = kNoBlock;
  Digest key = {};
  std::vector<int32_t> tokens = {};
  uint64_t root = 0;  // of the text (KvSpace::root)
};

// The host block is its owner's again.
struct DiskDone {
  uint32_t kv_group = 0;
  BlockId host_block = kNoBlock;
  bool is_read = false;
  bool is_there = false;  // of a read: the host block holds the content now
};

class BlockDisk {
 public:
  virtual ~BlockDisk() = default;

  // Whether what it has may outlive the process; else it is for blocks that a request hands over (HandOver).
  virtual bool is_lasting() const { return true; }
  virtual bool contains(const Digest& key) const = 0;
  // How many blocks the queue of writes has room for, of the largest group.
  virtual uint32_t write_room() const = 0;
  // Until it is done the host block is read, or written. False: the queue is full, and nothing will come of it.
  virtual bool write(DiskBlock block) = 0;
  virtual bool read(DiskBlock block) = 0;
  // It cannot be trusted any more: neither this content nor, of forget, anything of these texts is found again.
  virtual void erase(const Digest& key) = 0;
  virtual void forget(uint64_t root) = 0;
  // Appends what is done since the last call.
  virtual void take_done(std::vector<DiskDone>* done) = 0;
};

}  // namespace llmrt
