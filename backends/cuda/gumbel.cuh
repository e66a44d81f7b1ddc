// CUDA door of the noise source (core/sample/gumbel.inc): each multiply and add rounded by itself.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace llmrt::cuda {

#define LLMRT_FN __device__ inline
#define LLMRT_UINT uint32_t
#define LLMRT_MUL(a, b) __fmul_rn(a, b)
#define LLMRT_ADD(a, b) __fadd_rn(a, b)
#define LLMRT_BITS_TO_FLOAT(u) __uint_as_float(u)
#define LLMRT_FLOAT_TO_BITS(f) __float_as_uint(f)
#define LLMRT_UINT_TO_FLOAT(u) __uint2float_rn(u)
#define LLMRT_MSB(u) (31 - __clz(static_cast<int>(u)))
#include "core/sample/gumbel.inc"
#undef LLMRT_FN
#undef LLMRT_UINT
#undef LLMRT_MUL
#undef LLMRT_ADD
#undef LLMRT_BITS_TO_FLOAT
#undef LLMRT_FLOAT_TO_BITS
#undef LLMRT_UINT_TO_FLOAT
#undef LLMRT_MSB

}  // namespace llmrt::cuda
