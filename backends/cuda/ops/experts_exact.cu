// Experts without the matrix units, for what they cannot take: f32 and bf16 weights, x that may not become f16, columns
// that are no multiple of 8, gates and other halves in two encodings. A warp makes an output of a row; lanes share the
// columns. Products and sums in f32.
#include "backends/cuda/activation.cuh"
#include "backends/cuda/dequant.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/numbers.cuh"
#include "backends/cuda/ops/experts_rows.cuh"
#include "backends/cuda/reduce.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kExactWarps = 8, kExactThreads = kExactWarps * kWarp;

template <class X>
__device__ float exact_dot(const PackedMatrix& weight, uint64_t row, const X* x) {
  float sum = 0;
  for (uint32_t k = threadIdx.x % kWarp; k < weight.columns; k += kWarp)
    sum += element(weight, row, k) * to_float(x[k]);
  return warp_sum(sum);
}

// Block (routed row, eight outputs).
template <class Out>
__global__ void __launch_bounds__(kExactThreads) experts_exact_gate_up_kernel(const ExpertArgs args) {
  const uint32_t routed = live_rows(args) * args.per_row;
  grid_dependency_wait();
  const uint32_t k = blockIdx.x, n = blockIdx.y * kExactWarps + threadIdx.x / kWarp;
  if (k >= routed || n >= args.outs) return;
  const uint64_t row = uint64_t{static_cast<uint32_t>(args.ids[k])} * args.stride + n;
  const float* x = static_cast<const float*>(args.x) + uint64_t{k / args.per_row} * args.gate.columns;
  float gate = exact_dot(args.gate, row, x) + (args.gate_bias ? args.gate_bias[row] : 0.0f);
  float up = exact_dot(args.up, row, x) + (args.up_bias ? args.up_bias[row] : 0.0f);
  add_terms(args, k, n, &gate, &up);
  if (threadIdx.x % kWarp == 0) store_activated<Out>(args, k, n, gate, up);
}

// Block (row, eight outputs).
template <class X>
__global__ void __launch_bounds__(kExactThreads) experts_exact_down_kernel(const ExpertArgs args) {
  const uint32_t live = live_rows(args);
  grid_dependency_wait();
  const uint32_t t = blockIdx.x, n = blockIdx.y * kExactWarps + threadIdx.x / kWarp;
  if (t >= live || n >= args.outs) return;
  float sum = 0;
  for (uint32_t k = t * args.per_row; k < (t + 1) * args.per_row; ++k) {
    const uint64_t row = uint64_t{static_cast<uint32_t>(args.ids[k])} * args.stride + n;
    const float one = exact_dot(args.gate, row, static_cast<const X*>(args.x) + uint64_t{k} * args.gate.columns);
    sum += args.weights[k] * (one + (args.gate_bias ? args.gate_bias[row] : 0.0f));
  }
  if (threadIdx.x % kWarp == 0) static_cast<float*>(args.out)[uint64_t{t} * args.outs + n] = sum;
}

}  // namespace

void lay_out_experts_exact(const ExpertShape& shape, ExpertChoice* choice) {
  choice->grid = {shape.num_rows * (shape.is_gated ? shape.per_row : 1), ceil_div(shape.outs, kExactWarps)};
  choice->threads = kExactThreads;
}

Status experts_exact(const ExpertChoice& choice, const ExpertArgs& args, DType math, const OpContext& at) {
  return with_float_type(math, choice.kernel, [&](auto type) {
    using T = decltype(type);
    return launch(at, choice, choice.is_gated ? experts_exact_gate_up_kernel<T> : experts_exact_down_kernel<T>, args);
  });
}

}  // namespace llmrt::cuda
