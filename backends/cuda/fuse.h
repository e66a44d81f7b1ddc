// OpList -> steps: which ops run together. A table of patterns, each a producer and the consumer of its result, is
// matched against the flow of data in the list, so an op that stands elsewhere in between does no harm. A pattern whose
// producer and consumer are both in the list and which does not match all the same is recorded with the reason.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "backends/cuda/compile_inputs.h"
#include "core/ops/op_list.h"

namespace llmrt::cuda {

struct PlainOp {
  Op op;
};
// The matmul makes the norm's result where it reads it; nothing else does.
struct NormedMatmul {
  RmsNorm norm;
  Matmul matmul;
};
// The products go to the activation, without a place in memory between, or in f16 as the activation's results are
// (beyond f16's range they become inf, which sampling reports).
struct GatedMatmul {
  std::optional<RmsNorm> made;  // as in NormedMatmul
  Matmul matmul;
  GatedActivation activation;
};
// The products are added to the norm's x where they are made. The norm itself follows, unless `sum_alone`: then another
// step makes it.
struct AddedMatmul {
  std::optional<RmsNorm> made;
  Matmul matmul;
  RmsNorm norm;
  bool sum_alone = false;
};
// What happens to q, k and v between their matmul and attention, in one kernel.
struct QkvHeads {
  std::optional<QkNorm> norm;
  Rope rope;
  KvWrite write;
};

struct Step {
  std::variant<PlainOp, NormedMatmul, GatedMatmul, AddedMatmul, QkvHeads> what;
  std::vector<uint32_t> ops;  // the list's ops that it stands for, ascending
};

// A pattern that is in the list and was not fused.
struct Unfused {
  const char* pattern = "";
  uint32_t producer = 0, consumer = 0;  // ops
  bool is_lost = false;                 // it does not match; else there is no kernel for it here
  std::string reason;
};

struct FusedList {
  std::vector<Step> steps;  // in the order in which they run
  std::vector<Unfused> unfused;
};
FusedList fuse(const OpList& list, const CompileInputs& inputs);

// What an op reads lives to the last op that any pattern could run it with, whatever kernels there are.
ArenaPlan plan_arena(const OpList& list);
// The arena that a list needs, whatever the device.
uint64_t arena_bytes(const OpList& list);

// What a step is called: "gated_matmul", or its op.
const char* step_name(const Step& step);

}  // namespace llmrt::cuda
