// An op list becomes a list of the backend's own steps. A step is one op, or several that run as one by a pattern of
// the table in patterns.cpp. Each step says all that it needs from the steps before it, so that no state passes between
// them while they are chosen or recorded. Patterns follow the flow of data: ops that touch nothing of a pattern may
// stand within it. What almost matches, and what matches but has no kernel, is noted with the reason.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "backends/vulkan/setting.h"

namespace llmrt::vulkan {

// x of a matmul is a norm that another matmul left unfinished: this one's kernel ends it (Resources::norms). slot: of
// the two slots of factors, the one that holds the factor of the norm before; eps: of the norm.
struct NormEnd {
  int slot = -1;  // x is whole
  float eps = 0;

  bool is_open() const { return slot >= 0; }
};

// Members are indices of ops in the list; -1: the step has none.
struct PlainStep {
  uint32_t op;
};
struct MatmulStep {
  uint32_t matmul;
  NormEnd x;
};
// A matmul and the gated activation of its result, which is not stored.
struct GatedMatmulStep {
  uint32_t matmul, activation;
  NormEnd x;
};
// A matmul of q, k and v whose kernel turns q and k and stores k and v.
struct QkvMatmulStep {
  uint32_t matmul, rope, kv_write;
  NormEnd x;
};
// A matmul whose result the norm adds to x. Its kernel makes the norm but for its factor, which is known once all of it
// is done; the next matmul multiplies by that.
struct NormedMatmulStep {
  uint32_t matmul, norm;
  uint32_t slot;  // the slot of factors that holds the factor of the norm before
};
// A matmul whose workgroups share tiles evenly and leave their parts to the norm behind it, which adds them up.
struct PartsMatmulStep {
  uint32_t matmul;
  uint32_t parts;
};
// parts: what is added to x: 0 nothing, 1 a tensor, else that many parts of a tensor.
struct NormStep {
  uint32_t norm;
  uint32_t parts;
  bool leaves_factor;  // in slot 0, for a matmul that leaves the norm behind it
};
// Any run of these over one qkv tensor.
struct QkvHeadsStep {
  int norm = -1, rope = -1, kv_write = -1;
};
using Step = std::variant<PlainStep, MatmulStep, GatedMatmulStep, QkvMatmulStep, NormedMatmulStep, PartsMatmulStep,
                          NormStep, QkvHeadsStep>;

// The ops of a step, in the list's order. A step runs where its last op stands.
std::vector<uint32_t> ops_of(const Step& step);
// The name of its pattern, or of its one op.
std::string name_of(const Step& step, const OpList& list);

// A pattern that does not run as one step although its ops are there.
struct PatternNote {
  const char* pattern;
  uint32_t op;   // the first of the pattern
  bool is_lost;  // the list does not let it; else no kernel is chosen for it
  std::string reason;
};

struct FusedList {
  std::vector<Step> steps;
  std::vector<PatternNote> notes;
};

struct PatternMatch;
// What the patterns find in a list, by op: of the list and the patterns alone, the same on every device.
std::vector<PatternMatch> find_matches(const OpList& list);
// For each op the last op of any pattern that may run both and needs what this one reads until then (plan_arena).
std::vector<int> lives_with(const OpList& list, std::span<const PatternMatch> matches);
FusedList fuse(const Setting& setting, std::span<const PatternMatch> matches);

}  // namespace llmrt::vulkan
