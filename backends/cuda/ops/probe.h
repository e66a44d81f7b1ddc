// Whether this build has code for the current device.
#pragma once

#include <cuda_runtime_api.h>

namespace llmrt::cuda {

cudaError_t probe_kernel_image();

}  // namespace llmrt::cuda
