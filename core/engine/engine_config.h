// Every limit and knob of an engine, units in the names; and the terms of its memory plan. Plain data.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/kv/block_pool.h"
#include "core/kv/kv_format.h"
#include "core/kv/prefix_cache.h"
#include "core/metrics/saturation.h"
#include "core/request/request_class.h"
#include "core/schedule/batching.h"
#include "core/schedule/class_shares.h"
#include "core/schedule/exhaustion.h"
#include "core/speculate/drafter.h"

namespace llmrt {

// Limits that the user named: the engine gives each in full, or fails with both numbers. Defaults may be reduced to
// what the device has.
struct AskedLimits {
  bool context = false, step_tokens = false, chunk_tokens = false, kv_tokens = false, kv_host = false;
  bool memory_utilization = false;
};

class BlockExchange;
class DiskSource;

// The disk tier below the host tier. Without a folder there is none.
struct DiskTierConfig {
  std::string folder;                  // each model and configuration has one of its own in it
  uint64_t bytes_max = 0;              // of the files there
  bool is_opened = true;               // false: it is in the memory plan alone, as for a report
  std::shared_ptr<DiskSource> source;  // where tests have their files; null: the file system's
};

// Low-rank adapters beside the model's weights. Without slots there are none.
struct AdapterConfig {
  uint32_t slots = 0;      // on the device at once, at most kAdapterSlotsMax
  uint32_t rank_max = 64;  // that one may have in a part of a weight group, at most kAdapterRankMax
  uint64_t bytes = 0;      // of the pool; 0 = room for `slots` of planned_rank on every matrix
  uint32_t planned_rank = 16;
};

struct EngineConfig {
  uint32_t context_max = 0;         // tokens a sequence may have; 0 = the model's
  uint32_t sequences_max = 256;     // running at once
  uint32_t step_tokens_max = 2048;  // tokens of one step
  uint32_t sample_rows_max = 256;   // sampled rows of one step (less where logits would pass one range)
  uint32_t penalty_rows_max = 0;    // running rows with token counts; 0 = all, or what memory allows
  // Prompt tokens of a step in which other rows decode, rounded down to a step size; up to 2.5 times as many to finish
  // an interactive prompt beside batch. 0 = by need: 512, and more while prompts come faster than that serves them or
  // would be late by `slo`, as far as steps stay within its time per token.
  uint32_t chunk_tokens = 0;
  double tpot_target_ms = 0;  // of steps in which others decode: chunks are as large as this allows; 0 = chunk_tokens
  double idle_step_ms = 250;  // of steps in which nothing decodes; 0 = any. Not on a processor
  uint32_t reserve_output_tokens = 256;  // expected output reserved at admission (min with max_tokens)
  bool learns_output = true;             // reserved instead, after 100 answers: what 95 % of them did not pass
  double watermark = 0.01;               // share of the pool kept free by admission
  double ttft_target_ms = 0;  // interactive and agent requests that would wait longer are refused; 0 = any wait
  ClassShares class_shares;   // of prefill and decode
  Batching batching = Batching::kContinuous;  // the others are baselines, for comparison
  int64_t batch_wait_ms = 50;                 // of dynamic batching: from the first that waits to a batch not full
  int64_t request_timeout_ms = 0, queue_timeout_ms = 0;  // of a whole answer; until a request starts. 0 = none
  uint64_t queue_tokens_max = 1u << 20;  // prompt tokens waiting in a lane; beyond it submit says overloaded
  // Branches that wait, and the bytes that they hold; beyond it submit says overloaded.
  uint64_t queue_branches_max = 1u << 14, queue_bytes_max = 256u << 20;
  uint64_t kv_tokens = 0;  // pool size; 0 = what memory allows
  // Share of the device's memory. Default on a processor, or where memory is the host's: a quarter of what is free.
  double memory_utilization = 0.9;
  // The most that this engine may take of that, beside what others have on the device; 0 = all.
  uint64_t memory_bytes_max = 0;
  double f16_copies_share = 0.15;  // of the pool's memory, for copies of quantised weights in f16, beside what the pool
                                   // has no use for; 0 = no copies
  KvDType kv_dtype = KvDType::kF16;
  uint32_t block_tokens = 16;  // 16, 32 or 64
  // For comparison: blocks behind the window of a window layer are kept until their sequence ends. Same tokens.
  bool keeps_windows = false;
  PrefixCacheKind prefix_cache = PrefixCacheKind::kRadix;
  uint32_t state_interval = 8192;  // of models with states: a checkpoint behind every so many tokens of a prompt
  uint64_t kv_host_bytes = 0;      // of the host's memory, for blocks that the pool gives up; 0 = none
  DiskTierConfig disk;
  // Through which engines of one process hand blocks over (Request::hand_over), in the place of a disk. Null: none.
  std::shared_ptr<BlockExchange> exchange = nullptr;
  OnExhaustion on_exhaustion = OnExhaustion::kPreempt;  // when the pool is full
  bool batch_invariant = false;                         // every request is; steps without one run faster kernels
  // What requests may ask for; the rest is unsupported. Interactive is what a request is that names no class, and is
  // always served.
  std::array<bool, kNumRequestClasses> allowed_classes = {true, true, true, true, true};
  bool allows_batch_invariant = true;  // asked for, or by the class evaluation
  // A step that has run for longer counts as hung (Engine::stalled). On a processor, where steps may take minutes, ten
  // times as long, or ten times what it was expected to take once that is known. 0 = none does.
  double hang_s = 60;
  // Requests that say nothing of it get drafts from their own text (core/speculate/ngram_drafter.h). Of all kinds at
  // most so many tokens a step.
  bool ngram_drafts = false;
  bool model_drafts = false;  // and drafts of the engine's draft model, where those are none
  uint32_t draft_tokens = kDraftTokensDefault;
  AdapterConfig adapters;
  bool expands_latents = true;  // prompts of latent attention may make keys and values of heads (expanded_rows.h)
  bool overlap = true;          // one step ahead; false = the plain loop, same tokens
  Slo slo;                      // what counts as late, in statistics and verdicts, and for chunks by need
  AskedLimits asked;
  uint32_t audit_steps = 1024;  // the scheduler's books are checked every so many steps; 1 in tests, 0 = never
};

// How the KV pool got its size. Bytes; printed by `explain --memory` and at start-up.
struct MemoryPlan {
  uint64_t device_bytes = 0;       // total
  uint64_t budget_bytes = 0;       // total x utilization (CPU: a quarter of the free)
  uint64_t used_before_bytes = 0;  // by others, before we came
  uint64_t weight_bytes = 0;
  uint64_t f16_copy_bytes = 0;               // of weight_bytes
  uint64_t workspace_bytes = 0;              // arena, row state, rings: measured with the largest step
  uint32_t penalty_rows = 0, sequences = 0;  // rows with token counts, of so many that may run
  uint64_t penalty_row_bytes = 0;            // of each; in workspace_bytes
  uint64_t reserve_bytes = 0;                // graphs, recordings, attention partials
  uint64_t block_bytes = 0;                  // one KV block in all layers
  uint32_t block_tokens = 0;
  uint64_t blocks_by_memory = 0, blocks_by_limit = 0;  // what memory allows; sequences_max x context_max or kv_tokens
  uint32_t num_blocks = 0;                             // the least: of the first group
  uint32_t num_host_blocks = 0;                        // of the host tier, beside them
  uint64_t pool_bytes = 0, host_pool_bytes = 0;        // of all groups
  bool host_is_for_disk = false;                       // a disk tier needs the host tier, which was not asked for
  uint64_t disk_bytes = 0;                             // of the disk tier
  std::string disk_folder;
  uint64_t adapter_bytes = 0;  // the pool of adapters; in workspace_bytes
  KvGroup expanded;            // room for expanded latents; no blocks: none
  // A draft model's weights and workspace; its part of a block, and of all blocks, beside those above.
  uint64_t draft_fixed_bytes = 0, draft_block_bytes = 0, draft_pool_bytes = 0;
  std::vector<KvPoolSize> pools;           // by KV group; empty: one group
  std::vector<uint64_t> pool_block_bytes;  // of one block or record of each
  std::string limited_by;                  // "memory", "sequences x context", "--kv-tokens" ...

  uint64_t expanded_bytes() const { return expanded.num_blocks * expanded.bytes_block(); }
};

}  // namespace llmrt
