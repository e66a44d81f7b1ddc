// Memory that is free goes back to the system. glibc keeps what was freed for later: after large requests and answers a
// server would look as large as it ever was. Any thread.
#pragma once

namespace llmrt {

// Once, at the start: allocations from 256 KiB on are mappings of their own, which end when they are freed.
void return_large_blocks_at_once();
// Gives back all that is free. Takes milliseconds, and other threads' allocations wait: not for threads in a hurry.
void return_free_memory();

}  // namespace llmrt
