// How far from the reference a kernel's results may be, as a share of their norm: the op tests' bounds
// (tests/reference/tolerance.h).
#pragma once

#include <span>

#include "core/kv/kv_format.h"
#include "tools/llmrt_bench/ops/excerpt.h"

namespace llmrt::bench {

// The errors of ops that run as one add up, and what they hand on may be rounded on its way. `math`: the dtype in which
// the device multiplies. Positions are below `position_max`. The rounding of the results comes on top.
double bound_of(std::span<const Op> ops, const Excerpt& excerpt, DType math, uint32_t position_max);

double rounding_of(DType dtype);
double rounding_of(KvDType dtype);

// Bounds of draws, filters and log-probabilities: f32 numbers of 5 to 16 that come out of sums of exponentials.
inline constexpr double kMarginBound = 1e-4, kLogSumBound = 4e-6, kLogprobBound = 1e-5;

}  // namespace llmrt::bench
