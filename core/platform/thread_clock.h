// Time that this thread was computing: what else the machine runs does not count.
#pragma once

#include <ctime>

namespace llmrt {

inline double thread_cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

}  // namespace llmrt
