// What the pool of adapters has done and holds. Plain data.
#pragma once

#include <cstdint>

namespace llmrt {

struct AdapterStats {
  // Requests whose adapter was on the device when they asked for it, or was not; adapters brought in and given up.
  uint64_t num_hits = 0, num_misses = 0, num_loads = 0, num_evictions = 0, bytes_written = 0;
  uint32_t num_resident = 0, num_waiting = 0;  // adapters
  uint32_t num_rows = 0;                       // running, with an adapter
  uint32_t num_slots = 0;                      // adapters that the pool may hold
  uint64_t pool_bytes = 0, free_bytes = 0;
};

}  // namespace llmrt
