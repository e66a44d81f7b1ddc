#include "core/platform/free_memory.h"

#include <cstdlib>  // defines __GLIBC__

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace llmrt {

void return_large_blocks_at_once() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 256 << 10);  // and no longer what the largest freed block was
#endif
}

void return_free_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace llmrt
