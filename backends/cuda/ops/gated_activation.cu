// gated_activation: out = activation(x[:, :F]) * x[:, F:]. x f32 or f16 [T, 2F]; out f32, f16 or bf16 [T, F]. A thread
// makes W neighbours of a row.
#include "backends/cuda/activation.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/numbers.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kThreads = 128;

template <class In, class Out, int W>
__global__ void __launch_bounds__(kThreads)
    gated_activation_kernel(const In* x, Activation activation, Out* out, uint32_t columns, const uint32_t* live) {
  const uint32_t num_live = *live;
  grid_dependency_wait();
  const uint32_t column = (blockIdx.x * kThreads + threadIdx.x) * W;
  const uint64_t row = blockIdx.y;
  if (row >= num_live || column >= columns) return;
  const Vec<In, W> gate = *reinterpret_cast<const Vec<In, W>*>(x + row * 2 * columns + column);
  const Vec<In, W> up = *reinterpret_cast<const Vec<In, W>*>(x + row * 2 * columns + columns + column);
  Vec<Out, W> result;
#pragma unroll
  for (int j = 0; j < W; ++j)
    result.v[j] = from_float<Out>(activate(activation, to_float(gate.v[j])) * to_float(up.v[j]));
  *reinterpret_cast<Vec<Out, W>*>(out + row * columns + column) = result;
}

template <class In>
Status start(const GatedActivation& op, const OpContext& at) {
  constexpr int kWidth = 16 / sizeof(In);
  const uint32_t columns = at.desc(op.out).columns;
  const uint32_t width = columns % kWidth == 0 ? kWidth : 1;
  const Grid grid{dim3(ceil_div(columns, kThreads * width), at.rows_of(op.out)), kThreads};
  return with_float_type(at.desc(op.out).dtype, "gated_activation out", [&](auto type) {
    using Out = decltype(type);
    return launch(at, "gated_activation",
                  width == kWidth ? gated_activation_kernel<In, Out, kWidth> : gated_activation_kernel<In, Out, 1>,
                  grid, at.tensor<In>(op.x), op.activation, at.tensor<Out>(op.out), columns, at.live(op.out));
  });
}

}  // namespace

Status run(const GatedActivation& op, const OpContext& at) {
  return start<float>(op, at);
}

Status run_from_f16(const GatedActivation& op, const OpContext& at) {
  return start<__half>(op, at);
}

}  // namespace llmrt::cuda
