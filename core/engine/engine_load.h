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
  double prefill_tokens_ms = 0;              // prompt tokens a millisecond
  double decode_ms = 0, decode_more_ms = 0;  // a step of those that run, and with one row more
};

}  // namespace llmrt
