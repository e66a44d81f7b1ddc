// add: out = a + b. scale: out = x * factor. soft_cap: out = cap * tanh(x / cap). sigmoid_gate: out = x * sigmoid(gate).
// gather_rows: out[r] = x[records[r].token_idx]. All f32 [rows, D], but sigmoid_gate's out of any dtype; a block takes 1,024 columns of a row, W neighbours a thread.
#include "backends/cuda/choose.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/numbers.cuh"
#include "backends/cuda/step_inputs.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kThreads = 256, kWidth = 4;

template <int W>
__global__ void __launch_bounds__(kThreads)
    add_kernel(const float* a, const float* b, float* out, uint32_t columns, const uint32_t* live) {
  grid_dependency_wait();
  const uint32_t column = (blockIdx.x * kThreads + threadIdx.x) * W;
  if (blockIdx.y >= *live || column >= columns) return;
  const uint64_t at = uint64_t{blockIdx.y} * columns + column;
  const Vec<float, W> left = *reinterpret_cast<const Vec<float, W>*>(a + at);
  const Vec<float, W> right = *reinterpret_cast<const Vec<float, W>*>(b + at);
  Vec<float, W> sum;
#pragma unroll
  for (int j = 0; j < W; ++j) sum.v[j] = left.v[j] + right.v[j];
  *reinterpret_cast<Vec<float, W>*>(out + at) = sum;
}

template <class Out, int W>
__global__ void __launch_bounds__(kThreads)
    scale_kernel(const float* x, float factor, Out* out, uint32_t columns, const uint32_t* live) {
  grid_dependency_wait();
  const uint32_t column = (blockIdx.x * kThreads + threadIdx.x) * W;
  if (blockIdx.y >= *live || column >= columns) return;
  const uint64_t at = uint64_t{blockIdx.y} * columns + column;
  const Vec<float, W> value = *reinterpret_cast<const Vec<float, W>*>(x + at);
  Vec<Out, W> result;
#pragma unroll
  for (int j = 0; j < W; ++j) result.v[j] = from_float<Out>(value.v[j] * factor);
  *reinterpret_cast<Vec<Out, W>*>(out + at) = result;
}

template <int W>
__global__ void __launch_bounds__(kThreads)
    soft_cap_kernel(const float* x, float cap, float* out, uint32_t columns, const uint32_t* live) {
  grid_dependency_wait();
  const uint32_t column = (blockIdx.x * kThreads + threadIdx.x) * W;
  if (blockIdx.y >= *live || column >= columns) return;
  const uint64_t at = uint64_t{blockIdx.y} * columns + column;
  Vec<float, W> value = *reinterpret_cast<const Vec<float, W>*>(x + at);
#pragma unroll
  for (int j = 0; j < W; ++j) value.v[j] = cap * tanhf(value.v[j] / cap);
  *reinterpret_cast<Vec<float, W>*>(out + at) = value;
}

template <class Out, int W>
__global__ void __launch_bounds__(kThreads)
    sigmoid_gate_kernel(const float* x, const float* gate, Out* out, uint32_t columns, const uint32_t* live) {
  grid_dependency_wait();
  const uint32_t column = (blockIdx.x * kThreads + threadIdx.x) * W;
  if (blockIdx.y >= *live || column >= columns) return;
  const uint64_t at = uint64_t{blockIdx.y} * columns + column;
  const Vec<float, W> value = *reinterpret_cast<const Vec<float, W>*>(x + at);
  const Vec<float, W> gates = *reinterpret_cast<const Vec<float, W>*>(gate + at);
  Vec<Out, W> result;
#pragma unroll
  for (int j = 0; j < W; ++j) result.v[j] = from_float<Out>(value.v[j] / (1.0f + expf(-gates.v[j])));
  *reinterpret_cast<Vec<Out, W>*>(out + at) = result;
}

template <int W>
__global__ void __launch_bounds__(kThreads)
    gather_rows_kernel(const float* x, uint32_t x_rows, float* out, uint32_t columns, const uint32_t* inputs) {
  grid_dependency_release();
  const uint32_t column = (blockIdx.x * kThreads + threadIdx.x) * W;
  const bool exists = blockIdx.y < inputs[kSmpNumRecords];
  const uint32_t token = exists ? input_array<SampleRecord>(inputs, kSmpRecords)[blockIdx.y].token_idx : x_rows;
  grid_dependency_wait();
  if (token >= x_rows || column >= columns) return;  // the host never sends a token beyond
  *reinterpret_cast<Vec<float, W>*>(out + uint64_t{blockIdx.y} * columns + column) =
      *reinterpret_cast<const Vec<float, W>*>(x + uint64_t{token} * columns + column);
}

uint32_t width_of(uint32_t columns) {
  return columns % kWidth == 0 ? kWidth : 1;
}
KernelChoice choice_of(const char* kernel, TensorId out, const OpList& list) {
  const uint32_t columns = list.tensors[static_cast<size_t>(out)].columns;
  KernelChoice choice{.kernel = kernel, .threads = kThreads};
  choice.grid = {ceil_div(columns, kThreads * width_of(columns)), list.rows_of(out)};
  return choice;
}

}  // namespace

Status choose(const Add& op, const OpList& list, const CompileInputs&, Launches* out) {
  add_launch(out, choice_of("add", op.out, list), [op](const KernelChoice& choice, const OpContext& at) {
    const uint32_t columns = at.desc(op.out).columns;
    return launch(at, choice, width_of(columns) == kWidth ? add_kernel<kWidth> : add_kernel<1>, at.tensor<float>(op.a),
                  at.tensor<float>(op.b), at.tensor<float>(op.out), columns, at.live(op.out));
  });
  return {};
}

Status choose(const Scale& op, const OpList& list, const CompileInputs&, Launches* out) {
  add_launch(out, choice_of("scale", op.out, list), [op](const KernelChoice& choice, const OpContext& at) {
    const uint32_t columns = at.desc(op.out).columns;
    return with_float_type(at.desc(op.out).dtype, "scale out", [&](auto type) {
      using Out = decltype(type);
      return launch(at, choice, width_of(columns) == kWidth ? scale_kernel<Out, kWidth> : scale_kernel<Out, 1>,
                    at.tensor<float>(op.x), op.factor, at.tensor<Out>(op.out), columns, at.live(op.out));
    });
  });
  return {};
}

Status choose(const SoftCap& op, const OpList& list, const CompileInputs&, Launches* out) {
  add_launch(out, choice_of("soft_cap", op.out, list), [op](const KernelChoice& choice, const OpContext& at) {
    const uint32_t columns = at.desc(op.out).columns;
    return launch(at, choice, width_of(columns) == kWidth ? soft_cap_kernel<kWidth> : soft_cap_kernel<1>,
                  at.tensor<float>(op.x), op.cap, at.tensor<float>(op.out), columns, at.live(op.out));
  });
  return {};
}

Status choose(const SigmoidGate& op, const OpList& list, const CompileInputs&, Launches* out) {
  add_launch(out, choice_of("sigmoid_gate", op.out, list), [op](const KernelChoice& choice, const OpContext& at) {
    const uint32_t columns = at.desc(op.out).columns;
    return with_float_type(at.desc(op.out).dtype, "sigmoid_gate out", [&](auto type) {
      using Out = decltype(type);
      return launch(at, choice, width_of(columns) == kWidth ? sigmoid_gate_kernel<Out, kWidth> : sigmoid_gate_kernel<Out, 1>,
                    at.tensor<float>(op.x), at.tensor<float>(op.gate), at.tensor<Out>(op.out), columns,
                    at.live(op.out));
    });
  });
  return {};
}

Status choose(const GatherRows& op, const OpList& list, const CompileInputs&, Launches* out) {
  add_launch(out, choice_of("gather_rows", op.out, list), [op](const KernelChoice& choice, const OpContext& at) {
    const uint32_t columns = at.desc(op.out).columns;
    const uint32_t x_rows = at.desc(op.x).storage == Storage::kHidden ? at.hidden_rows : at.rows_of(op.x);
    return launch(at, choice, width_of(columns) == kWidth ? gather_rows_kernel<kWidth> : gather_rows_kernel<1>,
                  at.tensor<float>(op.x), x_rows, at.tensor<float>(op.out), columns, at.sample_inputs);
  });
  return {};
}

}  // namespace llmrt::cuda
