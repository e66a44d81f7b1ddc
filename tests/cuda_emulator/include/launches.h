// What tests may learn of launches: each is told when it is asked for, in a stream that captures too.
#pragma once

#include <cstddef>
#include <functional>

namespace emulator {

struct LaunchRecord {
  const void* kernel;  // the function's address
  unsigned grid[3];
  unsigned threads;  // of a block
  unsigned cluster_y;
  size_t shared_bytes;  // dynamic
  bool is_dependent;
};

// Called by the thread that launches; an empty function ends it. With `runs` false kernels are told and not executed.
void observe_launches(std::function<void(const LaunchRecord&)> observer, bool runs);
void tell_launch(const LaunchRecord& record);

}  // namespace emulator
