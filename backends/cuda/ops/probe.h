// Whether this build has code for the current device.
#pragma once

#include <cuda_runtime_api.h>

namespace llmrt::cuda {

// `architecture`, unless null: the one that the code was compiled for, 10 times its major number and the minor one. An
// older one's is translated for newer devices, without what only those have.
cudaError_t probe_kernel_image(int* architecture = nullptr);

}  // namespace llmrt::cuda
