// Time that this thread was computing: what else the machine runs does not count.
#pragma once

#include "core/platform/thread_clock.h"

namespace llmrt {

inline double cpu_seconds() {
  return 1e-3 * thread_cpu_ms();
}

}  // namespace llmrt
