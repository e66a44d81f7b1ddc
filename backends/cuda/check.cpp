#include "backends/cuda/check.h"

namespace llmrt::cuda {
namespace {

ErrorCode code_of(cudaError_t code) {
  switch (code) {
    case cudaErrorMemoryAllocation:
      return ErrorCode::kOutOfMemory;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorNotSupported:
      return ErrorCode::kMissingFeature;
    default:
      return ErrorCode::kDeviceLost;
  }
}

}  // namespace

Error cuda_error(cudaError_t code, std::string_view what) {
  return make_error(code_of(code), "CUDA: {}: {} ({})", what, cudaGetErrorString(code), cudaGetErrorName(code));
}

}  // namespace llmrt::cuda
