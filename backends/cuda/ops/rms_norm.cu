// rms_norm: x += delta (when there is one); out = x / sqrt(mean(x^2) + eps) * weight. x, delta f32 [rows, D]; out f32,
// f16 or bf16. One block a row; a thread keeps up to kCached groups of W neighbours in registers and reads the rest
// again. Sums in f32, in a fixed order.
#include "backends/cuda/choose.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/numbers.cuh"
#include "backends/cuda/reduce.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kThreadsMax = 1024;
constexpr int kCached = 4;

struct Args {
  float* x;
  const float* delta;  // or null
  const float* weight;
  const uint32_t* live;
  uint32_t columns;
  float eps;
};

template <class Out, int W>
__global__ void __launch_bounds__(kThreadsMax) rms_norm_kernel(Args args, Out* out) {
  __shared__ float scratch[kThreadsMax / kWarp];
  using In = Vec<float, W>;
  const uint32_t groups = args.columns / W, live = *args.live;
  const In* weight = reinterpret_cast<const In*>(args.weight);
  In weights[kCached];
#pragma unroll
  for (int c = 0; c < kCached; ++c)
    if (threadIdx.x + c * blockDim.x < groups) weights[c] = weight[threadIdx.x + c * blockDim.x];
  grid_dependency_wait();
  const uint64_t row = blockIdx.x;
  if (row >= live) return;
  In* x = reinterpret_cast<In*>(args.x + row * args.columns);
  const In* delta = args.delta ? reinterpret_cast<const In*>(args.delta + row * args.columns) : nullptr;
  Vec<Out, W>* target = reinterpret_cast<Vec<Out, W>*>(out + row * args.columns);

  float sum = 0;
  const auto add = [&](uint32_t i) {
    In value = x[i];
    if (delta) {
      const In more = delta[i];
#pragma unroll
      for (int j = 0; j < W; ++j) value.v[j] += more.v[j];
      x[i] = value;
    }
#pragma unroll
    for (int j = 0; j < W; ++j) sum += value.v[j] * value.v[j];
    return value;
  };
  In cached[kCached];
#pragma unroll
  for (int c = 0; c < kCached; ++c) {
    const uint32_t i = threadIdx.x + c * blockDim.x;
    if (i < groups) cached[c] = add(i);
  }
  for (uint32_t i = threadIdx.x + kCached * blockDim.x; i < groups; i += blockDim.x) add(i);

  sum = block_reduce(sum, SumOf(), scratch);
  const float factor = 1.0f / sqrtf(sum / static_cast<float>(args.columns) + args.eps);
  const auto write = [&](uint32_t i, const In& value, const In& w) {
    Vec<Out, W> result;
#pragma unroll
    for (int j = 0; j < W; ++j) result.v[j] = from_float<Out>(value.v[j] * factor * w.v[j]);
    target[i] = result;
  };
#pragma unroll
  for (int c = 0; c < kCached; ++c) {
    const uint32_t i = threadIdx.x + c * blockDim.x;
    if (i < groups) write(i, cached[c], weights[c]);
  }
  for (uint32_t i = threadIdx.x + kCached * blockDim.x; i < groups; i += blockDim.x) write(i, x[i], weight[i]);
}

}  // namespace

Status choose(const RmsNorm& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  const uint32_t columns = list.tensors[static_cast<size_t>(op.x)].columns, rows = list.rows_of(op.x);
  const uint32_t width = columns % 4 == 0 ? 4 : 1;
  // With many rows, few threads for each: a multiprocessor has more of them at a time. That changes the order of sums.
  const bool has_few = rows >= inputs.tuning.norm_few_threads_rows_min && !list.batch_invariant;
  KernelChoice choice{.kernel = "rms_norm", .variant = op.delta == kNoTensor ? "" : "sum", .grid = {rows}};
  choice.threads = std::min(round_up(ceil_div(columns / width, has_few ? kCached : 1u), kWarp), kThreadsMax);
  add_launch(out, choice, [op, width](const KernelChoice& c, const OpContext& at) {
    const Args args{at.tensor<float>(op.x),      op.delta == kNoTensor ? nullptr : at.tensor<float>(op.delta),
                    at.weight_vector(op.weight), at.live(op.x),
                    at.desc(op.x).columns,       op.eps};
    return with_float_type(at.desc(op.out).dtype, "rms_norm out", [&](auto type) {
      using Out = decltype(type);
      return launch(at, c, width == 4 ? rms_norm_kernel<Out, 4> : rms_norm_kernel<Out, 1>, args,
                    at.tensor<Out>(op.out));
    });
  });
  return {};
}

}  // namespace llmrt::cuda
