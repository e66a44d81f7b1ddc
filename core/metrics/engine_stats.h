// Counters and gauges of one engine, as /metrics and tools read them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/metrics/adapter_stats.h"
#include "core/metrics/disk_stats.h"
#include "core/metrics/draft_stats.h"
#include "core/metrics/histogram.h"
#include "core/metrics/in_system.h"
#include "core/metrics/saturation.h"

namespace llmrt {

inline constexpr int kNumFinishReasons = 12;  // FinishReason of core/request/request.h

// The pool of one KV group.
struct KvGroupStats {
  uint32_t window = 0;  // positions that a token sees; 0 = all
  uint32_t blocks_total = 0, blocks_free = 0;
  uint32_t blocks_used_most = 0;  // at once, since the start
};

// Groups of states: records of running sequences, and checkpoints from which others may go on.
struct StateStats {
  uint32_t records_total = 0, records_used = 0;  // used: held by sequences
  uint32_t checkpoints = 0;                      // that nobody holds; held ones are among the used
  uint64_t num_kept = 0, num_evicted = 0, num_hits = 0;
};

struct EngineStats {
  uint32_t num_running = 0, num_waiting = 0, num_streaming = 0;
  uint64_t queue_tokens = 0;
  uint32_t blocks_total = 0, blocks_free = 0, blocks_cached = 0;  // cached ones are among the free
  std::vector<KvGroupStats> kv_groups;                            // what these are the sums of
  StateStats states;
  // Slots in the tables of running sequences (block size x blocks), and those of them that hold a token, when the last
  // step was planned. What sequences share counts for each: slots - tokens is the waste, tokens / slots the use.
  uint64_t table_slots = 0, table_tokens = 0;
  uint64_t prompt_tokens = 0, generated_tokens = 0;
  uint64_t prefix_queries = 0, prefix_hits = 0;  // in prompt tokens, at the first admission
  uint64_t prefix_host_hits = 0;                 // of the hits, from the host tier
  uint64_t prefix_disk_hits = 0;                 // and those that a disk has read into it for the request
  uint32_t host_blocks_total = 0, host_blocks_used = 0;
  uint64_t blocks_stored = 0, blocks_loaded = 0;  // moved to the host tier, and back
  DiskStats disk;                                 // the engine's
  // Positions computed for branches that have ended, once each; and what a batch of fixed shape would have computed on
  // top (batching.h): none with continuous batching.
  uint64_t useful_tokens = 0, padded_tokens = 0;
  uint64_t num_steps = 0, num_preemptions = 0, num_rejected = 0;
  uint64_t num_parked = 0;  // draws put off to a later step, as the row's logit changes or mask were not there in time
  DraftStats drafts;
  AdapterStats adapters;              // the engine's
  uint64_t num_pool_exhausted = 0;    // requests that ended as they alone outgrew the pool
  uint64_t num_outgrown = 0;          // of the preemptions, those for a request that had passed its reservation
  uint64_t over_reserved_tokens = 0;  // reserved at admission and not used, of requests that ended
  uint64_t num_reclaims = 0;          // those that gave lent room back to a higher class
  uint64_t num_swaps = 0;             // of the preemptions, those whose keys and values go to the host tier
  uint32_t overtaken_most = 0;  // times that others were admitted before a request that had not started; no baseline
  std::array<uint64_t, kNumFinishReasons> finished = {};  // by FinishReason
  Histogram ttft_s{counted_latencies_s()}, itl_s{counted_latencies_s()}, e2e_s{counted_latencies_s()};
  Histogram tpot_s{counted_latencies_s()};
  // Each branch: from its arrival to the first step that computes something, from there to the first token, and to the
  // last one.
  Histogram queue_s{counted_latencies_s()}, prefill_s{counted_latencies_s()}, decode_s{counted_latencies_s()};
  // In tokens: of each prompt when it is first admitted, and of each answer that has any when it ends.
  Histogram prompt_tokens_hist{counted_lengths()}, answer_tokens_hist{counted_lengths()};
  uint64_t num_ttft_late = 0, num_tpot_late = 0;                     // of these, over the objective (Slo)
  Histogram step_rows{batch_bounds()}, step_tokens{batch_bounds()};  // batch sizes
  InSystem in_system;                                                // branches, from add to their end
  uint32_t num_answering = 0;                                        // of these, told their first token before the end
  // The engine's monitor over all of this.
  SaturationVerdicts saturation = {};
  LittlesLaw littles_law;
  double recent_hit_rate = 0, recent_host_hit_rate = 0, recent_disk_hit_rate = 0;  // of prompt tokens, last minute
  double plan_ms = 0, device_ms = 0, wall_ms = 0;  // sums over steps; idle = 1 - device / wall
  double mask_wait_ms = 0;                         // that tails waited for masks of grammars

  // The share of the pool that requests hold, 0 to 1.
  double kv_usage() const {
    return blocks_total == 0 ? 0 : 1.0 - static_cast<double>(blocks_free) / static_cast<double>(blocks_total);
  }
};

inline SaturationSample saturation_sample(const EngineStats& stats) {
  SaturationSample sample;
  sample.num_first_tokens = stats.ttft_s.count();
  sample.num_first_tokens_late = stats.num_ttft_late;
  sample.num_tpots = stats.tpot_s.count();
  sample.num_tpots_late = stats.num_tpot_late;
  sample.num_preemptions = stats.num_preemptions;
  sample.prefix_queries = stats.prefix_queries;
  sample.prefix_hits = stats.prefix_hits;
  sample.prefix_host_hits = stats.prefix_host_hits;
  sample.prefix_disk_hits = stats.prefix_disk_hits;
  sample.prompt_tokens = stats.prompt_tokens;
  sample.in_system = stats.in_system;
  sample.num_unanswered = stats.in_system.num() - stats.num_answering;
  sample.queue_tokens = stats.queue_tokens;
  if (stats.blocks_total > 0)
    sample.kv_free_share = static_cast<double>(stats.blocks_free) / static_cast<double>(stats.blocks_total);
  return sample;
}

}  // namespace llmrt
