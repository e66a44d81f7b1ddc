// The disk tier: a bounded queue of blocks to write and to read in front of a store (segment files; or memory that
// engines share, for blocks that are handed over), and the thread that works through it. Host memory is read and
// written by that thread alone while a block is in the queue.
//
// Owns the store and, where it was started, the thread. The calls of BlockDisk are for one thread, the engine's, and
// never wait for the disk; stats() may be called from any. At its end the thread writes what is queued.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <variant>

#include "core/disk/segment_store.h"

namespace llmrt {

// The bytes of a block of a group's host pool, in parts (Backend::host_block).
using HostMemory = std::function<std::vector<std::span<std::byte>>(uint32_t kv_group, BlockId host_block)>;

class DiskTier final : public BlockDisk {
 public:
  // `is_lasting`: what is stored may be found after a restart. `record_bytes_max`: of the largest block there.
  DiskTier(std::unique_ptr<BlockStore> store, uint64_t record_bytes_max, bool is_lasting, HostMemory memory);
  // Over files.
  DiskTier(std::unique_ptr<Folder> folder, SegmentLimits limits, HostMemory memory);
  ~DiskTier() override;

  // Without, work() is to be called.
  void start_thread();
  // Reads one file that the start has found, or does the next of the queue. False: there was nothing to do.
  bool work();

  bool is_lasting() const override { return is_lasting_; }
  bool contains(const Digest& key) const override;
  uint32_t write_room() const override;
  bool write(DiskBlock block) override;
  bool read(DiskBlock block) override;
  void erase(const Digest& key) override;
  void forget(uint64_t root) override;
  void take_done(std::vector<DiskDone>* done) override;

  DiskStats stats() const;

 private:
  struct Write {
    DiskBlock block;
  };
  struct Read {
    DiskBlock block;
  };
  struct Erase {
    Digest key;
  };
  struct Forget {
    uint64_t root;
  };
  using Job = std::variant<Write, Read, Erase, Forget>;

  void post(Job job);
  std::optional<Job> next();
  void run();
  bool scan();
  DiskDone do_job(const Write& job);
  DiskDone do_job(const Read& job);

  const std::unique_ptr<BlockStore> store_;
  const bool is_lasting_;
  const HostMemory memory_;
  const uint32_t writes_max_;
  bool scans_next_ = false;  // of work()

  mutable std::mutex mutex_;  // of what follows, up to the thread
  std::condition_variable posted_;
  std::deque<Job> jobs_;
  std::unordered_map<uint64_t, uint32_t> writing_;  // writes that are queued or being done, by their key's first word
  uint32_t num_writes_ = 0, num_reads_ = 0;         // that are not done
  uint64_t num_dropped_ = 0;
  std::vector<DiskDone> done_;
  bool stops_ = false;

  std::thread thread_;
};

}  // namespace llmrt
