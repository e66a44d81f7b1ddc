// CUDA_TRY(call, what): returns from the enclosing function (Status or Result) with a typed Error when a call fails.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "core/base/status.h"

namespace llmrt::cuda {

// out_of_memory, missing_feature, or device_lost: after any other failure nothing on the device can be relied on.
// `what`: what was being done, and how much was asked for.
Error cuda_error(cudaError_t code, std::string_view what);

}  // namespace llmrt::cuda

#define CUDA_TRY(call, what)                                                \
  do {                                                                      \
    if (const cudaError_t cuda_result = (call); cuda_result != cudaSuccess) \
      return ::llmrt::cuda::cuda_error(cuda_result, what);                  \
  } while (0)
