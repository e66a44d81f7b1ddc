// Draws the tokens of a sample trace again, on any engine with the same model: each position behind the tokens that
// were recorded, whatever was drawn before it here.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/engine/engine.h"
#include "core/sample_trace/sample_trace.h"

namespace llmrt {

struct Divergence {
  uint32_t position;  // in the answer
  int32_t recorded, drawn;
  float recorded_margin, drawn_margin;  // winner minus runner-up, there and here
};

struct ReplayedBranch {
  uint32_t num_drawn = 0;  // positions drawn again
  uint32_t num_diverged = 0;
  std::optional<Divergence> first;   // of those that diverged
  uint32_t num_other_masks = 0;      // positions at which other tokens might be drawn than when it was recorded
  float logprob_difference_max = 0;  // of the raw ones, where the tokens are equal
  std::optional<Error> error = {};   // why it could not be drawn again, or not to its end
  bool is_equal() const { return num_diverged == 0 && num_other_masks == 0 && !error; }
};

// Of a branch that had an adapter; without bytes where it is not known.
using AdapterOf = std::function<ReadyAdapter(const TracedBranch&)>;
using ConstraintOf = std::function<std::shared_ptr<const TokenConstraint>(const TracedBranch&)>;

// By the trace's branches. `engine` is not run by anybody else and has nothing to do. `progress`: tokens done and in
// all. An error is the engine's end; what is wrong with one branch stands there. Processors and policies that are the
// recording program's own are not known here: such a branch has an error that names them.
// constraint_of: of a branch that was drawn under a grammar, asked once for it; null where it is not known.
Result<std::vector<ReplayedBranch>> replay(Engine& engine, const SampleTrace& trace,
                                           const std::function<void(uint64_t, uint64_t)>& progress,
                                           const ConstraintOf& constraint_of = {}, const AdapterOf& adapter_of = {});

}  // namespace llmrt
