// What blocks of one kernel hand to each other (twin: shaders/arrival.glsl).
#pragma once

#include "backends/cuda/warpgroup.cuh"

namespace llmrt::cuda {

// By `threads` threads that meet at the block's barrier `number`, one of whom `is_first`: whether theirs is the last of
// `count` blocks that count themselves; then what the others wrote before is visible, and the counter is 0 again.
// `is_last`: in shared memory.
__device__ inline bool arrives_last(uint32_t* counter, uint32_t count, uint32_t number, uint32_t threads, bool is_first,
                                    uint32_t* is_last) {
  named_barrier_wait(number, threads);
  if (is_first) {  // its fences stand for what all have written and will read (PTX: causality order through barriers)
    __threadfence();
    *is_last = atomicAdd(counter, 1u) == count - 1;
    if (*is_last) *counter = 0;
    __threadfence();
  }
  named_barrier_wait(number, threads);
  return *is_last;
}

}  // namespace llmrt::cuda
