#pragma once

#include <cstdint>

namespace llmrt {

// What requests that wait hold together.
struct QueueLoad {
  uint64_t tokens = 0, branches = 0, bytes = 0;
};

}  // namespace llmrt
