// The table of patterns by which ops run as one step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/vulkan/fuse.h"
#include "backends/vulkan/matches.h"

namespace llmrt::vulkan {

// What fusing carries along a list.
struct FuseState {
  int slot = -1;              // the slot of the last norm's factor; -1: no norm has kept its factor
  TensorId left = kNoTensor;  // the result of a norm that was left unfinished, until its reader ends it
  float eps = 0;
  TensorId parts_of = kNoTensor;  // the tensor that the last matmul left in parts
  uint32_t parts = 1;

  // How a matmul reads x; behind it the norm is whole.
  NormEnd end(TensorId x);
};

struct Pattern {
  const char* name;
  Match (*match)(const OpFlow& flow, uint32_t op);
  // Null: a kernel takes it, and `step` is made. Else why none does.
  const char* (*take)(const Setting& setting, FuseState* state, const std::vector<uint32_t>& ops, Step* step);
  bool writes_early;  // its kernel writes an arena tensor of a later op of it while it still reads for an earlier one
  bool runs_in_part;  // a lost match still has ops that run as one
};
// In the order in which they are tried at an op.
std::span<const Pattern> all_patterns();

struct PatternMatch {
  uint32_t op;
  const Pattern* pattern;
  Match match;
};

}  // namespace llmrt::vulkan
