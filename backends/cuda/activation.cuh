// The activations of gated feed-forward networks, of routing and of recurrent layers.
#pragma once

#include <cuda_runtime.h>

#include "backends/cuda/intrinsics.cuh"
#include "core/ops/ops.h"

namespace llmrt::cuda {

__device__ inline float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}
__device__ inline float softplus(float x) {
  return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}

// x * sigmoid(t): SiLU has t = x, and the tanh form of GELU the same of twice what its tanh is of.
__device__ inline float activate(Activation activation, float x) {
  constexpr float kTwoRootTwoOverPi = 1.59576912f;
  const float t = activation == Activation::kSilu ? x : kTwoRootTwoOverPi * (x + 0.044715f * x * x * x);
  return __fdividef(x, 1.0f + exp2_fast(-kLog2E * t));
}

// What a gate and the other half become.
__device__ inline float gated(Activation activation, float gate, float up) {
  if (activation != Activation::kClampedSilu) return activate(activation, gate) * up;
  const float g = gate > 7.0f ? 7.0f : gate;  // what is not a number stays so
  const float u = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
  return __fdividef(g, 1.0f + exp2_fast(-kLog2E * 1.702f * g)) * (u + 1.0f);
}

// Without another half; what is not a number stays so.
__device__ inline float squared_relu(float x) {
  return x < 0.0f ? 0.0f : x * x;
}

}  // namespace llmrt::cuda
