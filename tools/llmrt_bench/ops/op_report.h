// What `ops` prints and records.
#pragma once

#include <vector>

#include "tools/llmrt_bench/ops/op_bench.h"
#include "tools/llmrt_bench/record/record.h"

namespace llmrt::bench {

struct MeasuredStep {
  StepKind kind;
  std::vector<StepFigures> devices;
};

// A table of the step's kernels on one device.
void print_step(const StepKind& kind, const StepFigures& step);
void record_step(const StepKind& kind, const StepFigures& step, Record* record);

// The kernels that lose most, for each step on each device.
void print_furthest(const std::vector<MeasuredStep>& all);
// What was not compared, each once, and what is beyond its bound, which is an error.
Status print_checks(const std::vector<MeasuredStep>& all);

}  // namespace llmrt::bench
