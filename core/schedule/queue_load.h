#pragma once

#include <cstdint>

namespace llmrt {

// Of requests that wait.
struct QueueLoad {
  uint64_t tokens = 0, branches = 0, bytes = 0;
};

}  // namespace llmrt
