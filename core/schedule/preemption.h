#pragma once

#include <cstdint>

#include "core/request/request.h"

namespace llmrt {

// A running sequence that had to yield. Its tokens stay. What it had computed stays where it is until others take its
// blocks; then it is in the host tier (swapped), or is computed again later.
struct Preemption {
  RequestId request_id;
  RequestId wanted_by;       // the request whose next token needed a block when none was free (it may be its own)
  uint32_t computed_tokens;  // given up
  uint32_t num_blocks;       // given back, of all groups
  uint32_t times;            // that this request has yielded, this one included
  bool swapped = false;
  double swap_ms = 0, recompute_ms = 0;  // what the cost model says of either
};

}  // namespace llmrt
