// joined_qk_norm, in place: q / sqrt(mean(q^2) + eps) * weight over all numbers of q, and k likewise. qkv f32
// [T, (num_heads + 2 num_kv_heads) * head_dim]. One block a token and part; sums in f32, in a fixed order.
#include "backends/cuda/choose.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/reduce.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kThreads = 256;

struct Args {
  float* qkv;
  const float *q_weight, *k_weight;
  const uint32_t* live;
  uint32_t q_columns, k_columns, columns;
  float eps;
};

__global__ void __launch_bounds__(kThreads) joined_qk_norm_kernel(Args args) {
  __shared__ float scratch[kThreads / kWarp];
  const uint32_t live = *args.live;
  grid_dependency_wait();
  if (blockIdx.x >= live) return;
  const bool is_key = blockIdx.y == 1;
  const uint32_t count = is_key ? args.k_columns : args.q_columns;
  const float* weight = is_key ? args.k_weight : args.q_weight;
  float* x = args.qkv + uint64_t{blockIdx.x} * args.columns + (is_key ? args.q_columns : 0);
  float sum = 0;
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) sum += x[i] * x[i];
  sum = block_reduce(sum, SumOf(), scratch);
  const float factor = 1.0f / sqrtf(sum / static_cast<float>(count) + args.eps);
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) x[i] *= factor * weight[i];
}

}  // namespace

Status choose(const JoinedQkNorm& op, const OpList& list, const CompileInputs&, Launches* out) {
  KernelChoice choice{.kernel = "joined_qk_norm", .threads = kThreads};
  choice.grid = {list.rows_of(op.qkv), op.num_kv_heads > 0 ? 2u : 1u};
  add_launch(out, choice, [op](const KernelChoice& c, const OpContext& at) {
    const Args args{at.tensor<float>(op.qkv),
                    at.weight_vector(op.q_weight),
                    op.num_kv_heads > 0 ? at.weight_vector(op.k_weight) : nullptr,
                    at.live(op.qkv),
                    op.num_heads * op.head_dim,
                    op.num_kv_heads * op.head_dim,
                    at.desc(op.qkv).columns,
                    op.eps};
    return launch(at, c, joined_qk_norm_kernel, args);
  });
  return {};
}

}  // namespace llmrt::cuda
