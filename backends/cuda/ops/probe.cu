#include <cuda_runtime.h>

#include "backends/cuda/ops/probe.h"

namespace llmrt::cuda {
namespace {
__global__ void probe_kernel() {}
}  // namespace

cudaError_t probe_kernel_image(int* architecture) {
  cudaFuncAttributes attributes;
  const cudaError_t code = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(probe_kernel));
  if (architecture && code == cudaSuccess) *architecture = attributes.ptxVersion;
  return code;
}

}  // namespace llmrt::cuda
