// A BlockDisk that keeps keys alone, and works when it is told to.
#pragma once

#include <algorithm>
#include <deque>
#include <set>
#include <vector>

#include "core/kv/block_disk.h"

namespace llmrt::test {

class MemoryBlocks final : public BlockDisk {
 public:
  bool contains(const Digest& key) const override { return keys_.contains(key); }
  uint32_t write_room() const override { return 4; }
  bool write(DiskBlock block) override {
    keys_.insert(block.key);
    jobs_.push_back({std::move(block), false});
    return true;
  }
  bool read(DiskBlock block) override {
    jobs_.push_back({std::move(block), true});
    return true;
  }
  void erase(const Digest& key) override { keys_.erase(key); }
  void forget(uint64_t) override { keys_.clear(); }  // more than it must
  void take_done(std::vector<DiskDone>* done) override {
    done->insert(done->end(), done_.begin(), done_.end());
    done_.clear();
  }

  void work(uint64_t num_jobs) {
    for (; num_jobs > 0 && !jobs_.empty(); --num_jobs, jobs_.pop_front()) {
      const Job& job = jobs_.front();
      done_.push_back({job.block.kv_group, job.block.host_block, job.is_read, keys_.contains(job.block.key)});
    }
  }

 private:
  struct Job {
    DiskBlock block;
    bool is_read;
  };
  std::set<Digest> keys_;
  std::deque<Job> jobs_;
  std::vector<DiskDone> done_;
};

}  // namespace llmrt::test
