// The packed inputs as kernels see them. Twin: core/ops/step_inputs.h, whose records are read as they are.
#pragma once

#include <cuda_runtime.h>

#include "core/ops/step_inputs.h"

namespace llmrt::cuda {

// The array whose offset stands in header word `header`.
template <class T>
__device__ const T* input_array(const uint32_t* inputs, uint32_t header) {
  return reinterpret_cast<const T*>(inputs + inputs[header]);
}

}  // namespace llmrt::cuda
