// embed: out[t] = weight[tokens[t]], dequantised exactly, f32 [T, D]. A block takes 256 columns of a token. A token
// that the table does not have becomes NaN: its logits are flagged as not finite and the request ends with that error.
#include "backends/cuda/dequant.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/weights.h"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    embed_kernel(const int32_t* tokens, PackedMatrix weight, float* out, const uint32_t* live) {
  grid_dependency_wait();
  const uint32_t t = blockIdx.y, column = blockIdx.x * kThreads + threadIdx.x;
  if (t >= *live || column >= weight.columns) return;
  const uint32_t token = static_cast<uint32_t>(tokens[t]);
  out[uint64_t{t} * weight.columns + column] =
      token < weight.rows ? element(weight, token, column) : __uint_as_float(0x7fc00000u);
}

}  // namespace

Status run(const Embed& op, const OpContext& at) {
  const PackedMatrix& weight = at.weights->tensor(op.weight);
  if (at.desc(op.out).columns != weight.columns)
    return make_error(ErrorCode::kInvalidArgument, "embed: expected {} columns, found {}", weight.columns,
                      at.desc(op.out).columns);
  const Grid grid{dim3(ceil_div(weight.columns, kThreads), at.rows_of(op.out)), kThreads};
  return launch(at, "embed", embed_kernel, grid, at.tensor<int32_t>(op.tokens), weight, at.tensor<float>(op.out),
                at.live(op.out));
}

}  // namespace llmrt::cuda
