// gated_norm: RMS norm of each group of columns of a row, gated by silu(gate) before the norm or behind it. x, gate f32
// [rows, C]; out f32, f16 or bf16. Groups of up to kWarpColumns numbers have a warp each, greater ones a block. A
// thread keeps up to kCached times W neighbours in registers and reads the rest again. Sums in f32, in a fixed order.
#include "backends/cuda/choose.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/numbers.cuh"
#include "backends/cuda/recurrent.cuh"
#include "backends/cuda/reduce.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kThreadsMax = 512, kWarpsPlain = 4, kWarpColumns = 256;
constexpr int kCached = 2;

struct GatedNormArgs {
  const float* x;
  ColumnsIn gate;
  const float* weight;
  const uint32_t* live;
  uint32_t columns, group_columns;
  uint32_t weight_stride;  // from one group's weights to the next's; 0: all groups share them
  bool gate_first;
  float eps;
};

template <class Out, int W, bool kByWarp>
__global__ void __launch_bounds__(kThreadsMax) gated_norm_kernel(GatedNormArgs args, Out* out) {
  __shared__ float scratch[kThreadsMax / kWarp];
  using In = Vec<float, W>;
  const uint32_t threads = kByWarp ? kWarp : blockDim.x, thread = threadIdx.x % threads;
  const uint32_t groups_row = args.columns / args.group_columns, count = args.group_columns / W;
  const uint64_t work = uint64_t{blockIdx.x} * (blockDim.x / threads) + threadIdx.x / threads;
  const uint32_t row = static_cast<uint32_t>(work / groups_row), first = work % groups_row * args.group_columns;
  const In* weight = reinterpret_cast<const In*>(args.weight + work % groups_row * args.weight_stride);
  const uint32_t live = *args.live;
  grid_dependency_wait();
  if (row >= live) return;  // whole warps, where these have groups
  const In* x = reinterpret_cast<const In*>(args.x + uint64_t{row} * args.columns + first);
  const In* gate = reinterpret_cast<const In*>(args.gate.of(row) + first);
  Vec<Out, W>* target = reinterpret_cast<Vec<Out, W>*>(out + uint64_t{row} * args.columns + first);

  float sum = 0;
  // What is normed; *factors: what it is multiplied by behind that.
  const auto read = [&](uint32_t i, In* factors) {
    In value = x[i];
    *factors = gate[i];
#pragma unroll
    for (int j = 0; j < W; ++j) {
      const float gated = factors->v[j] * sigmoid(factors->v[j]);
      value.v[j] *= args.gate_first ? gated : 1.0f;
      factors->v[j] = args.gate_first ? 1.0f : gated;
    }
    return value;
  };
  In cached[kCached], cached_factors[kCached];
#pragma unroll
  for (int c = 0; c < kCached; ++c) {
    const uint32_t i = thread + c * threads;
    if (i >= count) continue;
    cached[c] = read(i, &cached_factors[c]);
#pragma unroll
    for (int j = 0; j < W; ++j) sum += cached[c].v[j] * cached[c].v[j];
  }
  for (uint32_t i = thread + kCached * threads; i < count; i += threads) {
    In factors;
    const In value = read(i, &factors);
#pragma unroll
    for (int j = 0; j < W; ++j) sum += value.v[j] * value.v[j];
  }
  if constexpr (kByWarp)
    sum = warp_sum(sum);
  else
    sum = block_reduce(sum, SumOf(), scratch);
  const float factor = 1.0f / sqrtf(sum / static_cast<float>(args.group_columns) + args.eps);
  const auto write = [&](uint32_t i, const In& value, const In& factors) {
    const In w = weight[i];
    Vec<Out, W> result;
#pragma unroll
    for (int j = 0; j < W; ++j) result.v[j] = from_float<Out>(value.v[j] * factor * w.v[j] * factors.v[j]);
    target[i] = result;
  };
#pragma unroll
  for (int c = 0; c < kCached; ++c)
    if (thread + c * threads < count) write(thread + c * threads, cached[c], cached_factors[c]);
  for (uint32_t i = thread + kCached * threads; i < count; i += threads) {
    In factors;
    const In value = read(i, &factors);
    write(i, value, factors);
  }
}

template <class Out>
auto gated_norm_kernel_of(uint32_t width, bool by_warp) {
  if (width == 4) return by_warp ? gated_norm_kernel<Out, 4, true> : gated_norm_kernel<Out, 4, false>;
  return by_warp ? gated_norm_kernel<Out, 1, true> : gated_norm_kernel<Out, 1, false>;
}

}  // namespace

Status choose(const GatedNorm& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  const uint32_t columns = list.tensors[static_cast<size_t>(op.x)].columns, groups = columns / op.group_columns;
  const bool by_warp = op.group_columns <= kWarpColumns;
  const uint32_t width = op.group_columns % 4 == 0 && has_whole_fours(op.gate, list) ? 4 : 1;
  const PackedMatrix& weight = inputs.tensors[static_cast<size_t>(op.weight)];
  const uint32_t weight_stride = weight.columns == op.group_columns ? 0 : op.group_columns;
  KernelChoice choice{.kernel = "gated_norm", .variant = op.gate_first ? "gate first" : ""};
  const uint32_t works = list.rows_of(op.x) * groups;
  choice.grid = {by_warp ? ceil_div(works, kWarpsPlain) : works};
  choice.threads = by_warp
                       ? kWarpsPlain * kWarp
                       : std::min(round_up(ceil_div(op.group_columns / width, uint32_t{kCached}), kWarp), kThreadsMax);
  add_launch(out, choice, [op, width, by_warp, weight_stride](const KernelChoice& c, const OpContext& at) {
    const GatedNormArgs args{at.tensor<float>(op.x), columns_in(op.gate, at), at.weight_vector(op.weight),
                             at.live(op.x),          at.desc(op.x).columns,   op.group_columns,
                             weight_stride,          op.gate_first,           op.eps};
    return with_float_type(at.desc(op.out).dtype, "gated_norm out", [&](auto type) {
      using Out = decltype(type);
      return launch(at, c, gated_norm_kernel_of<Out>(width, by_warp), args, at.tensor<Out>(op.out));
    });
  });
  return {};
}

}  // namespace llmrt::cuda
