// Which kernel runs, in which variant, on which grid: a value. It is made without a device (choose.h), it can be
// printed and compared, and a launch function reads nothing else to decide how it starts.
#pragma once

#include <cstdint>
#include <string>

namespace llmrt::cuda {

struct Extent {
  uint32_t x = 1, y = 1, z = 1;
  bool operator==(const Extent&) const = default;
};

struct KernelChoice {
  const char* kernel = "";       // as prints and errors name it
  std::string variant = {};      // what tells it from others of that name: "q4_0 x16 warpgroups added"
  Extent grid = {};              // blocks
  uint32_t threads = 0;          // threads per block; 0: a call of a library, which has no grid of ours
  uint32_t shared_bytes = 0;     // dynamic shared memory per block
  uint32_t cluster = 1;          // blocks along y that run side by side and read each other's shared memory
  uint32_t stages = 0;           // stages of a ring in shared memory; 0: none
  uint64_t workspace_bytes = 0;  // what it writes to the workspace
};

std::string print(const KernelChoice& choice);

}  // namespace llmrt::cuda
