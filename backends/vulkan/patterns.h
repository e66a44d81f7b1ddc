// The table of patterns by which ops run as one step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/vulkan/flow.h"
#include "backends/vulkan/fuse.h"

namespace llmrt::vulkan {

// What fusing carries along a list.
struct FuseState {
  int slot = -1;              // of the factors: that of the last norm; -1: no norm has kept its factor
  TensorId left = kNoTensor;  // the result of a norm that was left unfinished, until its reader ends it
  float eps = 0;
  TensorId parts_of = kNoTensor;  // the tensor that the last matmul left in parts
  uint32_t parts = 1;

  // How a matmul reads x; behind it the norm is whole.
  NormEnd end(TensorId x);
};

struct Pattern {
  const char* name;
  Match (*match)(const Flow& flow, uint32_t op);
  // Null: a kernel takes it; else why none does.
  const char* (*refuses)(const Setting& setting, const FuseState& state, const std::vector<uint32_t>& ops);
  Step (*make)(const Setting& setting, FuseState* state, const std::vector<uint32_t>& ops);
  bool writes_early;  // its kernel writes an arena tensor of a later op of it while it still reads for an earlier one
};
std::span<const Pattern> all_patterns();

}  // namespace llmrt::vulkan
