#include "core/disk/disk_tier.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "core/base/check.h"

namespace llmrt {
namespace {

constexpr uint64_t kQueuedBytesMax = 256u << 20;  // of writes
constexpr uint32_t kQueuedWritesMin = 4, kQueuedWritesMax = 4096;
constexpr uint32_t kQueuedReadsMax = 65536;

uint64_t first_word(const Digest& key) {
  uint64_t word;
  std::memcpy(&word, key.data(), sizeof word);
  return word;
}

}  // namespace

DiskTier::DiskTier(std::unique_ptr<BlockStore> store, uint64_t record_bytes_max, bool is_lasting, HostMemory memory)
    : store_(std::move(store)),
      is_lasting_(is_lasting),
      memory_(std::move(memory)),
      writes_max_(static_cast<uint32_t>(
          std::clamp<uint64_t>(kQueuedBytesMax / record_bytes_max, kQueuedWritesMin, kQueuedWritesMax))) {}

DiskTier::DiskTier(std::unique_ptr<Folder> folder, SegmentLimits limits, HostMemory memory)
    : DiskTier(std::make_unique<SegmentStore>(std::move(folder), limits), limits.record_bytes_max(),
               /*is_lasting=*/true, std::move(memory)) {}

DiskTier::~DiskTier() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
  }
  posted_.notify_one();
  thread_.join();
}

void DiskTier::start_thread() {
  LLMRT_CHECK(!thread_.joinable(), "a disk tier has one thread");
  thread_ = std::thread([this] { run(); });
}

void DiskTier::run() {
  for (;;) {
    if (work()) continue;
    std::unique_lock lock(mutex_);
    posted_.wait(lock, [this] { return stops_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
  }
}

// In turn: what the files hold is what the first requests are after.
bool DiskTier::work() {
  scans_next_ = !scans_next_;
  if (scans_next_ && scan()) return true;
  std::optional<Job> job = next();
  if (!job) return scan();
  if (const auto* erase = std::get_if<Erase>(&*job)) {
    store_->erase(erase->key);
    return true;
  }
  if (const auto* forget = std::get_if<Forget>(&*job)) {
    store_->forget(forget->root);
    return true;
  }
  const auto* write = std::get_if<Write>(&*job);
  const DiskDone done = write ? do_job(*write) : do_job(std::get<Read>(*job));
  std::lock_guard lock(mutex_);
  done_.push_back(done);
  --(write ? num_writes_ : num_reads_);
  if (!write) return true;
  const auto entry = writing_.find(first_word(write->block.key));
  if (--entry->second == 0) writing_.erase(entry);
  return true;
}

bool DiskTier::scan() {
  {
    std::lock_guard lock(mutex_);
    if (stops_) return false;
  }
  return store_->scan_next();
}

DiskDone DiskTier::do_job(const Write& job) {
  store_->put(job.block, memory_(job.block.kv_group, job.block.host_block));
  return {job.block.kv_group, job.block.host_block, false, false};
}

DiskDone DiskTier::do_job(const Read& job) {
  const bool is_there = store_->get(job.block, memory_(job.block.kv_group, job.block.host_block));
  return {job.block.kv_group, job.block.host_block, true, is_there};
}

std::optional<DiskTier::Job> DiskTier::next() {
  std::lock_guard lock(mutex_);
  if (jobs_.empty()) return std::nullopt;
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  return job;
}

void DiskTier::post(Job job) {
  jobs_.push_back(std::move(job));
  posted_.notify_one();
}

bool DiskTier::contains(const Digest& key) const {
  {
    std::lock_guard lock(mutex_);
    if (writing_.contains(first_word(key))) return true;
  }
  return store_->contains(key);
}

uint32_t DiskTier::write_room() const {
  std::lock_guard lock(mutex_);
  return writes_max_ - num_writes_;
}

bool DiskTier::write(DiskBlock block) {
  std::lock_guard lock(mutex_);
  if (num_writes_ == writes_max_) {
    ++num_dropped_;
    return false;
  }
  ++num_writes_;
  ++writing_[first_word(block.key)];
  post(Write{std::move(block)});
  return true;
}

bool DiskTier::read(DiskBlock block) {
  std::lock_guard lock(mutex_);
  if (num_reads_ == kQueuedReadsMax) return false;
  ++num_reads_;
  post(Read{std::move(block)});
  return true;
}

void DiskTier::erase(const Digest& key) {
  std::lock_guard lock(mutex_);
  post(Erase{key});
}

void DiskTier::forget(uint64_t root) {
  std::lock_guard lock(mutex_);
  post(Forget{root});
}

void DiskTier::take_done(std::vector<DiskDone>* done) {
  std::lock_guard lock(mutex_);
  done->insert(done->end(), done_.begin(), done_.end());
  done_.clear();
}

DiskStats DiskTier::stats() const {
  DiskStats stats = store_->stats();
  std::lock_guard lock(mutex_);
  stats.blocks_queued = num_writes_ + num_reads_;
  stats.dropped_queue = num_dropped_;
  return stats;
}

}  // namespace llmrt
