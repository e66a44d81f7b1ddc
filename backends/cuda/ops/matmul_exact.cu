// matmul without the matrix units, for what they cannot take: f32 weights, x in f32 or bf16, bf16 numbers beyond f16's
// range, columns that are no multiple of 8. One warp an output n, up to 8 rows at a time; lanes share the columns.
// Products and sums in f32.
#include "backends/cuda/dequant.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/numbers.cuh"
#include "backends/cuda/ops/matmul.h"
#include "backends/cuda/reduce.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kWarps = 8, kThreads = kWarps * kWarp, kRows = 8;

template <class X>
__global__ void __launch_bounds__(kThreads) matmul_exact_kernel(PackedMatrix weight, const X* x, const float* bias,
                                                                float* out, uint32_t out_stride, const uint32_t* live) {
  grid_dependency_wait();
  const uint32_t n = blockIdx.x * kWarps + threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const uint32_t row_first = blockIdx.y * kRows;
  if (n >= weight.rows || row_first >= *live) return;
  const uint32_t num_rows = min(kRows, *live - row_first);
  float sums[kRows] = {};
  for (uint32_t k = lane; k < weight.columns; k += kWarp) {
    const float w = element(weight, n, k);
#pragma unroll
    for (uint32_t r = 0; r < kRows; ++r)
      if (r < num_rows) sums[r] += w * to_float(x[uint64_t{row_first + r} * weight.columns + k]);
  }
#pragma unroll
  for (uint32_t r = 0; r < kRows; ++r) {
    const float sum = warp_sum(sums[r]);
    if (lane == 0 && r < num_rows) out[uint64_t{row_first + r} * out_stride + n] = sum + (bias ? bias[n] : 0.0f);
  }
}

}  // namespace

void lay_out_exact(const MatmulShape& shape, MatmulChoice* choice) {
  choice->grid = {ceil_div(shape.weight.rows, kWarps), ceil_div(shape.num_rows, kRows)};
  choice->threads = kThreads;
}

Status matmul_exact(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at) {
  return with_float_type(args.x_dtype, "matmul x", [&](auto type) {
    using X = decltype(type);
    return launch(at, choice, matmul_exact_kernel<X>, args.weight, static_cast<const X*>(args.x), args.bias, args.out,
                  args.out_stride, args.live);
  });
}

}  // namespace llmrt::cuda
