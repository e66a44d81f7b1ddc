// What an engine tells whoever chooses between engines, as of its last tick. Plain data.
#pragma once

#include <cstdint>

namespace llmrt {

struct EngineLoad {
  uint32_t num_running = 0, num_waiting = 0;  // branches; those that the engine has not looked at yet wait
  uint64_t waiting_tokens = 0;                // of their prompts
  uint64_t prompt_tokens_left = 0;            // of branches that run
  uint32_t blocks_free = 0;
  // By its cost model; 0 = not known yet.
  double prefill_tokens_ms = 0;              // prompt tokens a millisecond, in a prompt's first step
  double prefill_pair_ms = 0;                // of each token, for each key before it
  double decode_ms = 0, decode_more_ms = 0;  // a step of those that run, and with one row more
  // Of what has run there so far; 0 = nothing has.
  double answer_tokens = 0;       // of an answer, on average
  double prompt_tokens_each = 0;  // of prompts that were computed, for each token of an answer
};

}  // namespace llmrt
