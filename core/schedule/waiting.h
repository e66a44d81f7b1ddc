// The branches that wait, by lane and in the order in which they are looked at: preempted ones first, the last one at
// the front, then new ones by when they are due (their deadline, or some time after they came).
//
// Owns the queues and the sums of what waits; writes place and queued_* of WaitTicket. A branch is in one queue, or in
// none, and counts in the sums with what its ticket says. No errors. The engine's thread, except load() and tokens().
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>

#include "core/base/status.h"
#include "core/request/sequence.h"
#include "core/schedule/fairness.h"
#include "core/schedule/queue_load.h"

namespace llmrt {

class Waiting {
 public:
  using Queue = std::map<QueuePlace, Sequence*>;

  // `sequence` is kQueued or kPreempted, and waits().
  void add(Sequence& sequence);
  // It no longer waits().
  void remove(Sequence& sequence);

  const Queue& queue(Lane lane) const { return queues_[static_cast<size_t>(lane)]; }
  // Without those that need a slot for penalties.
  const Queue& plain_queue(Lane lane) const { return plain_queues_[static_cast<size_t>(lane)]; }
  const std::array<Queue, kNumLanes>& queues() const { return queues_; }
  uint32_t size() const;
  // Lanes in which a branch waits.
  LaneFlags lanes() const;

  // Thread-safe. Tokens of the lane, tokens of all lanes, and branches and bytes of all lanes.
  uint64_t tokens(Lane lane) const { return tokens_[static_cast<size_t>(lane)].load(std::memory_order_relaxed); }
  uint64_t tokens() const;
  QueueLoad load() const;

  // Sums and queues agree with the tickets of those that wait, and each is where its lane and its state say.
  Status check() const;

 private:
  std::array<Queue, kNumLanes> queues_;
  std::array<Queue, kNumLanes> plain_queues_;  // of these, those that need no slot for penalties
  uint64_t num_added_ = 0;
  std::array<std::atomic<uint64_t>, kNumLanes> tokens_ = {};
  std::atomic<uint64_t> branches_ = 0, bytes_ = 0;
};

}  // namespace llmrt
