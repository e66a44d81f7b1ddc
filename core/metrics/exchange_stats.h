// Counters and gauges of the memory through which engines hand blocks over (core/disk/block_exchange.h). Plain data.
#pragma once

#include <cstdint>

namespace llmrt {

struct ExchangeStats {
  uint64_t bytes_used = 0, bytes_max = 0;
  uint64_t blocks = 0;                       // that may be found
  uint64_t num_put = 0, num_got = 0;         // blocks given, and taken
  uint64_t num_missed = 0, num_evicted = 0;  // asked for and not there any more; gone for others
};

}  // namespace llmrt
