// Which of several unlike engines a request goes to. Pure: what is known of each worker goes in, a decision with every
// term that it was made of comes out, so that a log can say why.
//
// A worker that cannot serve the request is left out, with the reason. For each of the others its own cost model
// predicts:
//
//   wait   = running branches that must end before there are rows and blocks for it * time between two ends
//   ttft   = wait + (prompt tokens before it + own - cached) / rate, in what running rows leave of a step, and a step
//   tpot   = a step with the rows that will run beside it + prompts that are computed between its tokens
//   late   = max(0, ttft - 0.7 * its target) + tokens of the answer * max(0, tpot - its target)
//   others = how late its prompt makes the rows that run there
//   lost   = answers in time that the worker could give instead
//
// 1. If workers are in time (late and others are 0), the one with the least ttft / target + tpot / target is taken.
// 2. A short request that is late everywhere goes where least is lost: to a worker that is never in time, else to a
//    slow one, or one that is late already, up to 60 times the target. Spreading such
//    requests evenly would make every answer late.
// 3. A long request that is late everywhere, and every request if a target is 0 (then all time counts as late), goes
//    where late + others, and a share of the time to its end, are least.
//
// Terms and signs, decided 2026-12-01 (+: worse, -: better):
//   queue         +  prompt tokens before it, at the worker's own rate; in tpot, too, since short prompts overtake
//   depth         +  of a long prompt: its later tokens cost more
//   full worker   +  through wait: rows and blocks that have to be given back first
//   active rows   +  through tpot: the step that they make longer, and the prompts that come in the place of theirs
//   others        +  rows that its prompt makes late
//   given up      -  a worker that is late already takes what is late everywhere, so that the others stay in time
//   room left     -  of equal totals the worker with the most free blocks behind the request
//   prefix hits   -  tokens that need not be computed there
//   kept room     +  blocks of a large worker that short requests leave to long ones: such a worker is a last resort
//   errors        +  a worker that failed lately is left out for a while; then one request tries it (Fleet)
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace llmrt {

enum class PlacementPolicy : uint8_t { kLateness, kLeastLoad, kRoundRobin };
const char* placement_policy_name(PlacementPolicy policy);  // "lateness", "least-load", "round-robin"
std::optional<PlacementPolicy> parse_placement_policy(std::string_view name);

struct PlacementConfig {
  PlacementPolicy policy = PlacementPolicy::kLateness;
  double ttft_target_ms = 0, tpot_target_ms = 0;
  // Of a worker whose pool has at least twice the blocks of the smallest, so much is kept for requests of more than so
  // many tokens.
  double kept_share = 0.25;
  uint64_t long_tokens = 8192;
};

// What a request asks of a worker.
struct PlacementAsk {
  uint64_t prompt_tokens = 0, answer_tokens = 0;  // answer: of all branches, at most
  uint32_t num_branches = 1;
  bool batch_invariant = false, has_adapter = false, wants_draft_model = false;

  uint64_t tokens() const { return prompt_tokens + answer_tokens; }
};

// What never changes of a worker, and what it told last.
struct WorkerFacts {
  // Limits.
  uint32_t context_max = 0, block_tokens = 16, blocks_total = 0, sequences_max = 0, step_tokens = 2048;
  bool batch_invariant = false, has_draft_model = false;
  uint32_t adapter_slots = 0;
  // The load.
  uint32_t num_running = 0, num_waiting = 0;  // branches
  uint64_t waiting_tokens = 0;                // of prompts that wait
  uint64_t prompt_tokens_left = 0;            // of branches that run
  uint32_t blocks_free = 0;
  // Its cost model; 0 = not known yet.
  double prefill_tokens_ms = 0;              // tokens a millisecond, in a prompt's first step
  double prefill_pair_ms = 0;                // of each token, for each key before it
  double decode_ms = 0, decode_more_ms = 0;  // a step of those that run, and with one row more
  double answer_tokens = 0;                  // of an answer there, on average
  double prompt_tokens_each = 0;             // of prompts that were computed there, for each token of an answer
  uint64_t cached_tokens = 0;                // of this request's prompt
  std::string unusable = {};                 // why it takes nothing now: it failed, or is drained; empty: it does
};

struct PlacementTerms {
  std::string infeasible;  // empty: it could serve the request
  double ttft_ms = 0, tpot_ms = 0, late_ms = 0, total_ms = 0;
  uint64_t cached_tokens = 0;  // of the prompt
  double wait_ms = 0;          // of ttft: until it has its rows and blocks
  double others_ms = 0;        // that those that run are late by its prompt
  double lost = 0;             // answers in time that it costs there, by kind of worker (above)
  bool keeps_room = false;
  int64_t room_blocks = 0;  // free behind the request
};

struct PlacementChoice {
  std::optional<uint32_t> worker;  // nothing: no worker can
  std::vector<PlacementTerms> terms;
};

// `turn`: counts requests, for round robin.
PlacementChoice place(const PlacementConfig& config, const PlacementAsk& ask, std::span<const WorkerFacts> workers,
                      uint64_t turn);

// "cuda:0 ttft 12.1 ms tpot 4.0 ms late 0 total 31; vulkan:1 adapters: expected a slot, found none".
std::string describe(const PlacementChoice& choice, std::span<const std::string> names);

}  // namespace llmrt
