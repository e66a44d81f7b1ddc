// The launches of a product by one run of a weight group, once its kernel is decided (choose_matmul.cpp): the variant
// and its geometry.
#pragma once

#include "backends/cuda/launches.h"
#include "backends/cuda/ops/matmul_source.h"

namespace llmrt::cuda {

void add_kernel(MatmulKernel kernel, MatmulResult result, const MatmulShape& shape, const MatmulSource& source,
                const CompileInputs& inputs, Launches* out);
// By cuBLAS: quantised weights by slices that fit the workspace. Errors: out_of_memory, where no row does.
Status add_wide(const MatmulShape& shape, MatmulResult result, const MatmulSource& source, bool has_bias,
                const CompileInputs& inputs, Launches* out);

}  // namespace llmrt::cuda
