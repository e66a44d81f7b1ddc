// What the backend makes of an op list, once: steps (fuse.h), the kernel and groups of each launch (choose_*.h), places
// in the arena, barriers. Compiling pipelines, recording, profiling and printing all read the program; none of them
// looks at ops.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/vulkan/fuse.h"
#include "backends/vulkan/kernel.h"
#include "backends/vulkan/resources.h"
#include "core/ops/op_list.h"

namespace llmrt::vulkan {

struct Launch {
  Kernel kernel;
  Groups groups;
  PushBytes push;
  std::vector<View> reads, writes;
  // Sums that workgroups hand to each other, and words that count how many have done so.
  uint64_t products_bytes = 0, arrivals_bytes = 0;
  bool barrier = false;          // before it: it touches what an earlier launch of the list wrote, or overwrites
  bool barrier_in_step = false;  // the same where a barrier stands in front of its step
};

struct ProgramStep {
  std::string name;  // its pattern's, or its one op's
  std::vector<uint32_t> ops;
  uint32_t first_launch = 0, num_launches = 0;
};

struct Program {
  std::string name;
  ArenaPlan arena;
  std::vector<ProgramStep> steps;
  std::vector<Launch> launches;
  std::vector<PatternNote> notes;
};

// Errors: unsupported, naming what is not done; missing_feature for a launch that the device does not take;
// invalid_argument where the state's arena is too small.
Result<Program> make_program(const Resources& resources, const OpList& list);

// One line a launch: step, kernel with its constants by name, grid, sums handed over; "|" where a barrier stands
// before it. Then the patterns that were lost or not taken, with the reason.
std::string print(const Program& program);

ArenaPlan plan_arena(const OpList& list);
// The arena that a list needs on this backend, whatever the device.
uint64_t arena_bytes(const OpList& list);

}  // namespace llmrt::vulkan
