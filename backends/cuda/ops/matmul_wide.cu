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

Status multiply(const MatmulArgs& args, MatmulResult result, const OpContext& at) {
  const PackedMatrix& w = args.weight;
  const bool is_f16 = result == MatmulResult::kF16;
  Cublas::Out out{args.out, args.out_stride, is_f16, result == MatmulResult::kAdded};
  if (w.encoding == Encoding::kF16)
    return at.cublas->multiply(at.stream, w.plane[0], w.rows, w.columns, w.row_stride / 2, args.x, args.num_rows, out);
  __half* scratch = reinterpret_cast<__half*>(at.workspace.data);
  const uint64_t row_bytes = uint64_t{w.columns} * 2;
  const uint32_t slice_rows = static_cast<uint32_t>(std::min<uint64_t>(at.workspace.bytes / row_bytes, w.rows));
  if (slice_rows == 0)
    return make_error(ErrorCode::kOutOfMemory, "matmul: a row of {} bytes in f16 passes the workspace of {}", row_bytes,
                      at.workspace.bytes);
  for (uint32_t row = 0; row < w.rows; row += slice_rows) {
    const PackedMatrix slice = w.slice(row, std::min(slice_rows, w.rows - row));
    if (Status status = write_f16(slice, scratch, at); !status) return status;
    out.data = reinterpret_cast<std::byte*>(args.out) + uint64_t{row} * (is_f16 ? 2 : 4);
    if (Status status =
            at.cublas->multiply(at.stream, scratch, slice.rows, w.columns, w.columns, args.x, args.num_rows, out);
        !status)
      return status;
  }
  return {};
}

}  // namespace

Status write_f16(const PackedMatrix& weight, void* out, const OpContext& at) {
  const uint64_t threads = uint64_t{weight.rows} * ceil_div(weight.columns, kStep) * 4;
  const Grid grid{static_cast<uint32_t>(ceil_div<uint64_t>(threads, kThreads)), kThreads};
  return with_quantized(weight.encoding, [&]<Encoding E>() {
    return launch(at, "dequantize", dequantize_kernel<E>, grid, weight, static_cast<__half*>(out));
  });
}

Status matmul_wide(const MatmulArgs& args, MatmulResult result, const OpContext& at) {
  LLMRT_CHECK(result != MatmulResult::kF16 || !args.bias, "matmul_wide: a bias of f16 results");
  if (Status status = multiply(args, result, at); !status || !args.bias) return status;
  const Grid grid{dim3(ceil_div(args.weight.rows, kThreads), args.num_rows), kThreads};
  return launch(at, "matmul_bias", add_bias_kernel, grid, args.out, args.out_stride, args.bias, args.weight.rows,
                args.live);
}

}  // namespace llmrt::cuda
