// matmul for few rows: out[r][n] = sum over k of x[r][k] * W[n][k] + bias[n]; x f16 [rows, K], W [N, K] packed, out
// f32. For devices without asynchronous bulk copies, and for shapes that they cannot copy (matmul_stream_packed.cu).
//
// Bound by reading W once. A block makes 16 outputs n of 8 rows: its 8 warps take steps of 128 columns in turn, each
// lane loading 16-byte words of two weight rows straight into registers, several steps ahead, and the matrix units
// multiply: W is the 16x16 operand, x (8 rows, zero where not live) the 16x8 one. Integers of quantised weights are
// multiplied as they are, and the sums over each unit of 32 columns scaled in f32 (dequant.cuh). Sums in f32; the
// warps' sums are added in order of warps.
#include "backends/cuda/dequant.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/ops/matmul.h"
#include "backends/cuda/reduce.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kWarps = 8, kThreads = kWarps * kWarp;
constexpr uint32_t kTileOut = 16, kTileRows = 8;

// Steps in flight: about 64 registers of weights a thread.
template <Encoding E>
constexpr int kAhead = E == Encoding::kF16                  ? 2
                       : Fragment<E>::kBased || kIsBytes<E> ? 3
                                                            : 4;

struct Args {
  PackedMatrix weight;
  const __half* x;
  const float* bias;
  float* out;
  uint32_t out_stride;
  const uint32_t* live;
};

// sum += the products of unit i.
template <Encoding E>
__device__ void add_unit(float (&sum)[4], const Fragment<E>& upper, const Fragment<E>& lower, int i, uint32_t step,
                         uint32_t t, const uint4& x) {
  uint32_t up[4], low[4];
  upper.decode(i, t, up);
  lower.decode(i, t, low);
  if constexpr (!Fragment<E>::kScaled) {
    mma_16x8x16(sum, {up[0], low[0], up[1], low[1]}, {x.x, x.y});
    mma_16x8x16(sum, {up[2], low[2], up[3], low[3]}, {x.z, x.w});
  } else {
    float part[4];
    mma_16x8x16_first(part, {up[0], low[0], up[1], low[1]}, {x.x, x.y});
    mma_16x8x16(part, {up[2], low[2], up[3], low[3]}, {x.z, x.w});
#pragma unroll
    for (int c = 0; c < 4; ++c) sum[c] += (c < 2 ? upper : lower).scale(i, step) * part[c];
    if constexpr (Fragment<E>::kBased) {
      constexpr uint32_t kOnes = both_halves(0x3c00);
      float x_sum[4];  // of the unit's columns, in every row
      mma_16x8x16_first(x_sum, {kOnes, kOnes, kOnes, kOnes}, {x.x, x.y});
      mma_16x8x16(x_sum, {kOnes, kOnes, kOnes, kOnes}, {x.z, x.w});
#pragma unroll
      for (int c = 0; c < 4; ++c) sum[c] += (c < 2 ? upper : lower).base(i, step) * x_sum[c];
    }
  }
}

template <Encoding E>
__global__ void __launch_bounds__(kThreads, 2) matmul_vector_kernel(Args args) {
  __shared__ float sums[kWarps][kTileRows][kTileOut];
  const uint32_t warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, t = threadIdx.x % 4;
  const uint32_t columns = args.weight.columns, num_steps = (columns + kStep - 1) / kStep;
  const uint32_t out_first = blockIdx.x * kTileOut, row_first = blockIdx.y * kTileRows;
  // Rows past the end repeat the last one; their sums are not stored.
  const uint32_t last = args.weight.rows - 1;
  const uint64_t upper_row = min(out_first + g, last), lower_row = min(out_first + g + 8, last);

  grid_dependency_release();
  constexpr int kDepth = kAhead<E>;
  Fragment<E> upper[kDepth], lower[kDepth];
#pragma unroll
  for (int d = 0; d < kDepth; ++d) {
    const uint32_t step = warp + d * kWarps;
    if (step >= num_steps) break;
    upper[d].load(args.weight, upper_row, step, t);
    lower[d].load(args.weight, lower_row, step, t);
  }
  const uint32_t live = *args.live;
  // Weights never change, so they may be on their way before the kernel that writes x has ended.
  grid_dependency_wait();
  if (row_first >= live) return;
  const bool has_row = row_first + g < live;
  const __half* x = args.x + uint64_t{row_first + g} * columns;

  float sum[4] = {};
  for (uint32_t first = warp; first < num_steps; first += kDepth * kWarps) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const uint32_t step = first + d * kWarps;
      if (step >= num_steps) break;
      uint4 x_words[4];
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t column = step * kStep + i * kUnit + t * 8;
        x_words[i] = has_row && column < columns ? *reinterpret_cast<const uint4*>(x + column) : uint4{};
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        add_unit(sum, upper[d], lower[d], i, step, t, x_words[i]);
      }
      const uint32_t next = step + kDepth * kWarps;
      if (next < num_steps) {
        upper[d].load(args.weight, upper_row, next, t);
        lower[d].load(args.weight, lower_row, next, t);
      }
    }
  }
  sums[warp][2 * t][g] = sum[0];
  sums[warp][2 * t + 1][g] = sum[1];
  sums[warp][2 * t][g + 8] = sum[2];
  sums[warp][2 * t + 1][g + 8] = sum[3];
  __syncthreads();
  if (threadIdx.x >= kTileRows * kTileOut) return;
  const uint32_t n = threadIdx.x % kTileOut, r = threadIdx.x / kTileOut;
  if (out_first + n > last || row_first + r >= live) return;
  float total = args.bias ? args.bias[out_first + n] : 0.0f;
#pragma unroll
  for (uint32_t w = 0; w < kWarps; ++w) total += sums[w][r][n];
  args.out[uint64_t{row_first + r} * args.out_stride + out_first + n] = total;
}

}  // namespace

void lay_out_vector(const MatmulShape& shape, MatmulChoice* choice) {
  choice->grid = {ceil_div(shape.weight.rows, kTileOut), ceil_div(shape.num_rows, kTileRows)};
  choice->threads = kThreads;
}

Status matmul_vector(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at) {
  const Args kernel_args{args.weight, static_cast<const __half*>(args.x), args.bias, args.out, args.out_stride,
                         args.live};
  return with_encoding(args.weight.encoding,
                       [&]<Encoding E>() { return launch(at, choice, matmul_vector_kernel<E>, kernel_args); });
}

}  // namespace llmrt::cuda
