// Counters and gauges of the disk tier below an engine's host tier (core/disk).
#pragma once

#include <cstdint>

namespace llmrt {

// Blocks are those of all KV groups, records of states among them.
struct DiskStats {
  bool is_on = false;
  uint64_t bytes_max = 0, bytes_used = 0;  // of files
  uint64_t blocks = 0;                     // that may be found
  uint64_t blocks_queued = 0;              // writes and reads to be done
  uint64_t blocks_written = 0, blocks_read = 0;
  uint64_t bytes_written = 0, bytes_read = 0;
  uint64_t blocks_evicted = 0;  // gone with the file that was unused for longest
  // Writes that were not made: the queue was full; the disk failed, or had failed a moment ago.
  uint64_t dropped_queue = 0, dropped_disk = 0;
  // What was on the disk and cannot be used: it breaks the format or its checksum; it ends early; it is of another
  // model, configuration or version; it holds other tokens than its key stands for; the disk could not read it.
  uint64_t bad_corrupt = 0, bad_truncated = 0, bad_foreign = 0, bad_tokens = 0, bad_read = 0;
};

}  // namespace llmrt
