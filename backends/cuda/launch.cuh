// Launching kernels: the one place where a grid is started and its error read.
#pragma once

#include <cuda_runtime.h>

#include "backends/cuda/check.h"
#include "backends/cuda/intrinsics.cuh"
#include "backends/cuda/kernel_choice.h"
#include "backends/cuda/op_context.h"
#include "core/base/checked_math.h"

namespace llmrt::cuda {

struct Grid {
  dim3 blocks;
  dim3 threads;
  uint32_t shared_bytes = 0;  // dynamic
  uint32_t cluster_y = 1;     // blocks with the same x and z that run side by side and read each other's shared memory
};

template <class... Params, class... Args>
Status launch_on(cudaStream_t stream, bool dependent, const char* name, void (*kernel)(Params...), const Grid& grid,
                 Args... args) {
  constexpr uint32_t kPlainSharedBytes = 48 << 10;  // more must be asked for
  if (grid.shared_bytes > kPlainSharedBytes)
    CUDA_TRY(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(grid.shared_bytes)),
             name);
  cudaLaunchAttribute attributes[2] = {};
  uint32_t num_attributes = 0;
  if (dependent) {
    attributes[num_attributes].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[num_attributes++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cluster_y > 1) {
    attributes[num_attributes].id = cudaLaunchAttributeClusterDimension;
    attributes[num_attributes++].val.clusterDim = {1, grid.cluster_y, 1};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = num_attributes;
  CUDA_TRY(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...), name);
  return {};
}

// For kernels of ops. Each begins with grid_dependency_wait(): with dependent launch it may be started while its
// predecessor still runs, and must not touch before what that one writes or still reads. What no kernel writes may be
// read ahead of the wait: weights, and a step's inputs, which are copied before its first kernel; so may be what
// earlier steps wrote, and what kernels wrote that begin with grid_dependency_wait_alone(). Every block waits, also one
// that has no work: a kernel that ended before its predecessor would let the next one start too early.
template <class... Params, class... Args>
Status launch(const OpContext& at, const KernelChoice& choice, void (*kernel)(Params...), Args... args) {
  const Grid grid{dim3(choice.grid.x, choice.grid.y, choice.grid.z), choice.threads, choice.shared_bytes,
                  choice.cluster};
  return launch_on(at.stream, at.dependent_launch, choice.kernel, kernel, grid, args...);
}

}  // namespace llmrt::cuda
