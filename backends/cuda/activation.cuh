// The activations of gated feed-forward networks.
#pragma once

#include <cuda_runtime.h>

#include "backends/cuda/intrinsics.cuh"
#include "core/ops/ops.h"

namespace llmrt::cuda {

__device__ inline float activate(Activation activation, float x) {
  if (activation == Activation::kSilu) return __fdividef(x, 1.0f + exp2_fast(-kLog2E * x));
  constexpr float kRootTwoOverPi = 0.797884561f;
  return 0.5f * x * (1.0f + tanhf(kRootTwoOverPi * (x + 0.044715f * x * x * x)));
}

}  // namespace llmrt::cuda
