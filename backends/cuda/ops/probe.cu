#include <cuda_runtime.h>

#include "backends/cuda/ops/probe.h"

namespace llmrt::cuda {
namespace {
__global__ void probe_kernel() {}
}  // namespace

cudaError_t probe_kernel_image() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(probe_kernel));
}

}  // namespace llmrt::cuda
