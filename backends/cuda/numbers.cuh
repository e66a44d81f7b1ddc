// Conversions between f32 and the dtypes of tensors, and the choice of a kernel variant by dtype.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/base/status.h"
#include "core/ops/tensor.h"

namespace llmrt::cuda {

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(__half x) {
  return __half2float(x);
}
__device__ inline float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

template <class T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// W neighbouring numbers, read and written in one access.
template <class T, int W>
struct alignas(sizeof(T) * W) Vec {
  T v[W];
};

// fn(T{}) with T the C++ type of a float dtype.
template <class Fn>
Status with_float_type(DType dtype, const char* what, Fn fn) {
  switch (dtype) {
    case DType::kF32:
      return fn(float{});
    case DType::kF16:
      return fn(__half{});
    case DType::kBF16:
      return fn(__nv_bfloat16{});
    case DType::kI32:
      break;
  }
  return make_error(ErrorCode::kUnsupported, "{}: expected f32, f16 or bf16, found {}", what, dtype_name(dtype));
}

}  // namespace llmrt::cuda
