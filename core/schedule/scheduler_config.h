// Every limit and policy of a scheduler. A value: it does not change while the scheduler lives.
#pragma once

#include <cstdint>
#include <vector>

#include "core/kv/kv_space.h"
#include "core/metrics/engine_stats.h"
#include "core/schedule/adapter_books.h"
#include "core/schedule/batching.h"
#include "core/schedule/class_shares.h"
#include "core/schedule/cost_model.h"
#include "core/schedule/exhaustion.h"
#include "core/schedule/model_drafter.h"

namespace llmrt {

struct SchedulerConfig {
  uint32_t context_max = 0;
  uint32_t sequences_max = 256;
  uint32_t step_tokens_max = 2048;
  uint32_t sample_rows_max = 256;
  // Rows with token counts. Where there are fewer than sequences the branches of one request have half of them at most.
  uint32_t penalty_rows_max = 16;
  uint32_t chunk_tokens = 512;  // of all prompts together in a step in which others decode; but Pace::ends_prompt
  bool chunks_by_need = false;  // more than chunk_tokens where prompts would be late (Pace::chunk_tokens)
  // In steps in which others decode, predicted: chunks are as large as this allows. 0 = they are chunk_tokens.
  double tpot_target_ms = 0;
  // The same of steps in which nothing decodes, or twice what one of a single token takes, if that is more; 0 = any.
  double idle_step_ms = 0;
  uint32_t reserve_output_tokens = 256;  // reserved at admission: min(max_tokens, this)
  bool learns_output = false;            // reserved instead, as soon as it is known: what 95 % of answers did not pass
  double watermark = 0.01;               // share of each pool that admission leaves free
  uint64_t queue_tokens_max = 1u << 20;  // tokens waiting in a lane; what comes on top is rejected
  // The most branches that wait, in all lanes together, and what they hold (held_bytes). A request that finds none
  // waiting is never refused.
  uint64_t queue_branches_max = 1u << 14, queue_bytes_max = 256u << 20;
  // Interactive and agent requests for which more is expected are refused, as far as that is known; 0 = any wait.
  double ttft_target_ms = 0;
  ClassShares class_shares;
  Batching batching = Batching::kContinuous;
  int64_t batch_wait_ms = 0;         // kDynamic: from the first that waits until a batch that is not full
  std::vector<KvPoolSize> kv_pools;  // by KV group; one for a plain model
  PrefixCacheKind prefix_cache = PrefixCacheKind::kOff;
  uint32_t state_interval = 8192;  // a checkpoint of states is kept behind every so many tokens of a prompt
  OnExhaustion on_exhaustion = OnExhaustion::kPreempt;
  uint32_t host_blocks = 0;               // of the host tier of group 0 (others: KvPoolSize); 0 = none
  BlockDisk* disk = nullptr;              // below the host tier, which it needs; outlives the scheduler. Null: none
  AdapterBooks* adapters = nullptr;       // outlives the scheduler. Null: an adapter's number is its slot + 1
  ModelDrafter* model_drafter = nullptr;  // outlives the scheduler. Null: no row is drafted for by a model
  CostPrior cost_prior;
  // Of a row where the model has states: so many of its last tokens can be taken back (drafts_beside_states). 0: the
  // row has no drafts.
  uint32_t state_back_tokens = 0;
  uint32_t decode_item_tokens = 1;  // of a row that has drafts: so many read its keys once for all
  Digest cache_identity = {};       // what keys and values depend on beside the request (prefix_cache.h)
  std::vector<int32_t> end_of_generation;
  Slo slo;  // what statistics count as late, and chunks_by_need avoids
};

}  // namespace llmrt
