// What has happened: events for the clients, preemptions, a trace of each branch that is over, and the statistics. No
// decision reads any of it.
//
// Owns the three lists until they are taken, and EngineStats; writes Sequence::record (but for what others say of it:
// cached_tokens and num_preemptions). Exactly one event with a finish comes for each branch, and one trace.
// No errors. The engine's thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/kv/kv_space.h"
#include "core/metrics/engine_stats.h"
#include "core/request/request_trace.h"
#include "core/request/sequence.h"
#include "core/schedule/iteration_plan.h"
#include "core/schedule/preemption.h"

namespace llmrt {

// How many branches are where, for the gauges.
struct BranchCounts {
  uint32_t num_running = 0, num_waiting = 0, num_streaming = 0;
  uint64_t queue_tokens = 0;
  DraftStats drafts;
};

class Journal {
 public:
  explicit Journal(const Slo& slo) : slo_(slo) {}

  // ---- the way of a branch ----
  void note_arrival(Sequence& sequence, TimeNs now);
  // A request, not a branch.
  void note_rejected() { ++stats_.num_rejected; }
  // Branch 0 of a request runs for the first time. `has_cache`: its prompt was looked for; `host_tokens` of what was
  // found come from the host tier, and of these so many from a disk.
  void note_start(const Sequence& sequence, bool has_cache, uint64_t host_tokens, uint64_t disk_tokens = 0);
  // It has waited while a later request was admitted, so many times by now.
  void note_overtaken(uint32_t times) { stats_.overtaken_most = std::max(stats_.overtaken_most, times); }
  // A request that alone outgrew the pool ends.
  void note_pool_exhausted() { ++stats_.num_pool_exhausted; }
  void note_preemption(const Preemption& preemption, bool outgrew_reservation);
  // Lent rows that were taken back.
  void note_reclaims(uint64_t num_rows) { stats_.num_reclaims += num_rows; }
  // A drawn token has come.
  void note_token(Sequence& sequence, TimeNs now);
  // An answer of a beam search has come, all at once.
  void note_answer(Sequence& beam, uint32_t num_tokens, TimeNs now);
  // It ended while it ran, with so many positions reserved and not used.
  void note_unused_reservation(uint32_t num_tokens) { stats_.over_reserved_tokens += num_tokens; }
  void note_end(Sequence& sequence, FinishReason finish, TimeNs now);
  // The record of a branch that is over.
  void trace(const Sequence& sequence);

  // Id, branch and time of the event are set here.
  void tell(const Sequence& sequence, TokenEvent event, TimeNs now);

  // ---- steps ----
  // A step has stored blocks for the disk, and done nothing else.
  void note_saves(uint64_t num_blocks) { stats_.blocks_stored += num_blocks; }
  void note_plan(const IterationPlan& plan, std::span<Sequence* const> running, std::span<const KvPoolSize> pools,
                 TimeNs now);
  void note_parked(uint32_t count) { stats_.num_parked += count; }
  void note_commit() { ++stats_.num_steps; }
  // Positions that were computed for a branch that leaves, and what its batch, over with it, has padded.
  void note_useful(uint64_t computed, uint64_t padding) {
    stats_.useful_tokens += computed;
    stats_.padded_tokens += padding;
  }

  // ---- what it holds ----
  // Append what has happened since the last call, in order, and forget it.
  void take_events(std::vector<TokenEvent>* out);
  void take_preemptions(std::vector<Preemption>* out);
  void take_traces(std::vector<RequestTrace>* out);
  // Counters as they are, gauges as given.
  const EngineStats& stats(const BranchCounts& counts, const KvSpace& kv);

 private:
  void note_first_token(const Sequence& sequence, TimeNs now);

  const Slo slo_;
  std::vector<TokenEvent> events_;
  std::vector<Preemption> preemptions_;
  std::vector<RequestTrace> traces_;
  EngineStats stats_;
};

}  // namespace llmrt
