// gated_activation: out = activation(x[:, :F]) * x[:, F:], or the clamped form. x f32 or f16 [T, 2F]; out f32, f16 or
// bf16 [T, F]. The squared ReLU has no other half: x [T, F]. A thread makes W neighbours of a row.
#include "backends/cuda/activation.cuh"
#include "backends/cuda/choose.h"
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
    result.v[j] = from_float<Out>(gated(activation, to_float(gate.v[j]), to_float(up.v[j])));
  *reinterpret_cast<Vec<Out, W>*>(out + row * columns + column) = result;
}

template <class In, class Out, int W>
__global__ void __launch_bounds__(kThreads)
    squared_relu_kernel(const In* x, Activation, Out* out, uint32_t columns, const uint32_t* live) {
  const uint32_t num_live = *live;
  grid_dependency_wait();
  const uint32_t column = (blockIdx.x * kThreads + threadIdx.x) * W;
  const uint64_t at = uint64_t{blockIdx.y} * columns + column;
  if (blockIdx.y >= num_live || column >= columns) return;
  const Vec<In, W> in = *reinterpret_cast<const Vec<In, W>*>(x + at);
  Vec<Out, W> result;
#pragma unroll
  for (int j = 0; j < W; ++j) result.v[j] = from_float<Out>(squared_relu(to_float(in.v[j])));
  *reinterpret_cast<Vec<Out, W>*>(out + at) = result;
}

template <class In, class Out, int W>
auto* kernel_of(Activation activation) {
  return has_other_half(activation) ? gated_activation_kernel<In, Out, W> : squared_relu_kernel<In, Out, W>;
}

template <class In>
constexpr uint32_t kWidth = 16 / sizeof(In);
template <class In>
uint32_t width_of(uint32_t columns) {
  return columns % kWidth<In> == 0 ? kWidth<In> : 1;
}

template <class In>
Status start(const GatedActivation& op, const KernelChoice& choice, const OpContext& at) {
  const uint32_t columns = at.desc(op.out).columns;
  return with_float_type(at.desc(op.out).dtype, "gated_activation out", [&](auto type) {
    using Out = decltype(type);
    return launch(at, choice,
                  width_of<In>(columns) > 1 ? kernel_of<In, Out, static_cast<int>(kWidth<In>)>(op.activation)
                                            : kernel_of<In, Out, 1>(op.activation),
                  at.tensor<In>(op.x), op.activation, at.tensor<Out>(op.out), columns, at.live(op.out));
  });
}

template <class In>
Status choose_for(const GatedActivation& op, const char* variant, const OpList& list, Launches* out) {
  const uint32_t columns = list.tensors[static_cast<size_t>(op.out)].columns;
  KernelChoice choice{.kernel = "gated_activation", .variant = variant, .threads = kThreads};
  choice.grid = {ceil_div(columns, kThreads * width_of<In>(columns)), list.rows_of(op.out)};
  add_launch(out, choice, [op](const KernelChoice& c, const OpContext& at) { return start<In>(op, c, at); });
  return {};
}

}  // namespace

Status choose(const GatedActivation& op, const OpList& list, const CompileInputs&, Launches* out) {
  return choose_for<float>(op, "of f32", list, out);
}

Status choose_from_f16(const GatedActivation& op, const OpList& list, const CompileInputs&, Launches* out) {
  return choose_for<__half>(op, "of f16", list, out);
}

}  // namespace llmrt::cuda
