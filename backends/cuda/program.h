// What runs for a list: launches as values, in order, with the places of its tensors. Compiled once per list; running,
// capturing, timing and printing read it and decide nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "backends/cuda/fuse.h"
#include "backends/cuda/launches.h"

namespace llmrt::cuda {

struct Program {
  OpList list;
  ArenaPlan arena;
  std::vector<Step> steps;
  Launches launches;              // of all steps, in their order
  std::vector<size_t> step_ends;  // by step: the launches before the next one's first
  std::vector<Unfused> unfused;
};

// Errors: those of choose(), with the op.
Result<Program> compile(const OpList& list, const CompileInputs& inputs);

// One line for each launch: its ops, its step, its choice. Then the patterns that are lost, then those without a
// kernel.
std::string print(const Program& program);

// `base`: everything but list and plan, which the program has. Queues all launches on base.stream.
Status run(const Program& program, const OpContext& base);
// Captures what run() queues. `graph`: ready to be launched; null: nothing is kept, but the kernels' code is loaded.
Status capture(const Program& program, const OpContext& base, cudaGraphExec_t* graph);
// Runs step by step and waits. Appends the milliseconds of each op of the list: the first op of a step has the step's
// time, the others have 0.
Status time(const Program& program, const OpContext& base, std::vector<double>* op_ms);

}  // namespace llmrt::cuda
