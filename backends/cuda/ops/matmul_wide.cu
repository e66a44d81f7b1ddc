// matmul for many rows: cuBLAS on f16 weights with f32 sums and output. Quantised ones are first written out in f16, a
// slice of rows at a time so that the slice fits the workspace, each number rounded once; one thread a lane's share of
// a row (Fragment). Bias in a pass of its own; few models have one.
#include "backends/cuda/cublas.h"
#include "backends/cuda/dequant.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/matmul.h"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kThreads = 256;

// out [rows, columns] f16; a thread writes 32 numbers of a row as four words of 16 bytes.
template <Encoding E>
__global__ void __launch_bounds__(kThreads) dequantize_kernel(PackedMatrix weight, __half* out) {
  grid_dependency_wait();
  const uint32_t lanes_row = (weight.columns + kStep - 1) / kStep * 4;
  const uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  const uint64_t row = i / lanes_row;
  const uint32_t step = static_cast<uint32_t>(i % lanes_row) / 4, t = static_cast<uint32_t>(i % 4);
  if (row >= weight.rows) return;
  Fragment<E> fragment;
  fragment.load(weight, row, step, t);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t pairs[4];
    fragment.decode(i, t, pairs);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const __half2 q = half2_of(pairs[j]);
      const float scale = fragment.scale(i, step), base = fragment.base(i, step);
      pairs[j] = half2_bits(__floats2half2_rn(scale * __low2float(q) + base, scale * __high2float(q) + base));
    }
    const uint32_t column = step * kStep + i * kUnit + t * 8;
    if (column < weight.columns)
      *reinterpret_cast<uint4*>(out + row * weight.columns + column) = {pairs[0], pairs[1], pairs[2], pairs[3]};
  }
}

__global__ void __launch_bounds__(kThreads)
    add_bias_kernel(float* out, uint32_t out_stride, const float* bias, uint32_t columns, const uint32_t* live) {
  grid_dependency_wait();
  const uint32_t column = blockIdx.x * kThreads + threadIdx.x;
  if (blockIdx.y < *live && column < columns) out[uint64_t{blockIdx.y} * out_stride + column] += bias[column];
}

}  // namespace

KernelChoice choose_dequantize(const PackedMatrix& weight) {
  const uint64_t threads = uint64_t{weight.rows} * ceil_div(weight.columns, kStep) * 4;
  KernelChoice choice{"dequantize", encoding_name(weight.encoding)};
  choice.grid = {static_cast<uint32_t>(ceil_div<uint64_t>(threads, kThreads))};
  choice.threads = kThreads;
  return choice;
}

Status dequantize(const KernelChoice& choice, const PackedMatrix& weight, void* out, const OpContext& at) {
  return with_quantized(weight.encoding, [&]<Encoding E>() {
    return launch(at, choice, dequantize_kernel<E>, weight, static_cast<__half*>(out));
  });
}

Status matmul_cublas(MatmulResult result, const MatmulArgs& args, const OpContext& at) {
  const PackedMatrix& w = args.weight;
  const Cublas::Out out{args.out, args.out_stride, result == MatmulResult::kF16, result == MatmulResult::kAdded};
  return at.cublas->multiply(at.stream, w.plane[0], w.rows, w.columns, w.row_stride / 2, args.x, args.num_rows, out);
}

KernelChoice choose_bias(const MatmulShape& shape) {
  KernelChoice choice{"matmul_bias"};
  choice.grid = {ceil_div(shape.weight.rows, kThreads), shape.num_rows};
  choice.threads = kThreads;
  return choice;
}

Status add_bias(const KernelChoice& choice, const MatmulArgs& args, const OpContext& at) {
  return launch(at, choice, add_bias_kernel, args.out, args.out_stride, args.bias, args.weight.rows, args.live);
}

}  // namespace llmrt::cuda
